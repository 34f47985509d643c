#include <algorithm>
#include <string>

#include "c_api/c_handles.h"
#include "c_api/c_struct.h"
#include "c_api/text/c_text_handles.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

const ChatTemplates& templates_of(headrace_chat_templates* templates) {
  return *deref(templates, "templates").templates;
}

headrace_chat_options default_chat_options() {
  headrace_chat_options out{};
  out.add_generation_prompt = 1;
  return out;
}

}  // namespace

ChatOptions headrace::c_api::to_chat_options(const headrace_chat_options* options) {
  const headrace_chat_options in = read_options(options, default_chat_options());
  return {.tools_json = or_empty(in.tools_json),
          .chat_template = or_empty(in.chat_template),
          .variables_json = or_empty(in.variables_json),
          .add_generation_prompt = in.add_generation_prompt != 0,
          .continue_final_message = in.continue_final_message != 0};
}

void headrace_chat_options_init(headrace_chat_options* options, size_t size) {
  init_struct(options, size, default_chat_options());
}

headrace_code headrace_chat_templates_load(const char* folder,
                                           headrace_chat_templates** templates) {
  return guarded([&] {
    headrace_chat_templates*& out = deref(templates, "templates");
    out = new headrace_chat_templates{ChatTemplates::load(or_empty(folder))};
  });
}

headrace_code headrace_engine_chat_templates(headrace_engine* engine, const char* model,
                                             headrace_chat_templates** templates) {
  return guarded([&] {
    headrace_chat_templates*& out = deref(templates, "templates");
    out =
        new headrace_chat_templates{deref(engine, "engine").engine.chat_templates(or_empty(model))};
  });
}

void headrace_chat_templates_release(headrace_chat_templates* templates) { delete templates; }

headrace_code headrace_chat_templates_find(headrace_chat_templates* templates, const char* name,
                                           headrace_text** text) {
  return guarded([&] {
    headrace_text*& out = deref(text, "text");
    out = to_text(templates_of(templates).find(or_empty(name)));
  });
}

headrace_code headrace_chat_reads(headrace_chat_templates* templates,
                                  const headrace_chat_options* options, const char* variable,
                                  int32_t* reads) {
  return guarded([&] {
    int32_t& out = deref(reads, "reads");
    const auto read = templates_of(templates).variables(to_chat_options(options));
    out = std::ranges::find(read, or_empty(variable)) != read.end();
  });
}

headrace_code headrace_chat_message(const char* role, const char* content, size_t length,
                                    headrace_text** message) {
  return guarded([&] {
    headrace_text*& out = deref(message, "message");
    out = new OwnedText(chat_message(or_empty(role), to_view(content, length, "content")));
  });
}

headrace_code headrace_chat_render(headrace_chat_templates* templates, const char* messages_json,
                                   const headrace_chat_options* options, headrace_text** text) {
  return guarded([&] {
    headrace_text*& out = deref(text, "text");
    const ChatTemplates& with = templates_of(templates);
    out = new OwnedText(with.render(or_empty(messages_json), to_chat_options(options)));
  });
}
