#include "cpp/engine/load/packed_model.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "cpp/model/golden_case.h"
#include "headrace/pack.h"

namespace headrace {

namespace fs = std::filesystem;

PackedModel::PackedModel(const std::string& golden_case) {
  const fs::path source = load_golden_case(golden_case).folder;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (entry.path().filename().string().starts_with("golden")) continue;
    fs::copy(entry.path(), folder_.path() / entry.path().filename());
  }
}

ModelOptions PackedModel::options() const {
  ModelOptions options;
  options.path = folder_.path().string();
  options.packed_weights = file("packed").string();
  options.num_threads = 2;
  options.max_num_seqs = 2;
  options.num_kv_blocks = 16;
  options.block_size = 16;
  return options;
}

void PackedModel::pack(ModelOptions options) const {
  options.packed_weights.clear();
  pack_model(options, file("packed").string());
}

std::string PackedModel::read(const std::string& name) const {
  std::ifstream in(file(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void PackedModel::edit_header(const std::function<void(Json&)>& change) const {
  const std::string bytes = read("packed");
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  Json header = Json::parse(bytes.substr(8, length));
  change(header);
  std::string text = header.dump();
  text.append((4096 - (text.size() + 8) % 4096) % 4096, ' ');
  write("packed", safetensors_bytes(text, bytes.substr(8 + length)));
}

void PackedModel::edit_metadata(const std::string& key,
                                const std::function<void(Json&)>& change) const {
  edit_header([&](Json& header) {
    Json& text = header["__metadata__"][key];
    Json object = Json::parse(text.get<std::string>());
    change(object);
    text = object.dump();
  });
}

std::vector<std::string> PackedModel::names() const {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Answer ask(Engine& engine, const std::string& model) {
  RequestOptions request;
  request.prompt_token_ids = {5, 17, 3, 29, 11, 8, 5, 5, 23};
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 12;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 3;
  Request handle = engine.submit(model, request);
  Answer answer;
  for (auto queue = handle.results();;) {
    const Output output = queue.get();
    answer.tokens.insert(answer.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    for (const auto& position : output.logprobs) {
      for (const auto& [token, logprob] : position.top) answer.logprobs.push_back(logprob);
    }
    if (output.finished) return answer;
  }
}

Answer answer_of(const ModelOptions& options) {
  Engine engine;
  engine.install_model("m", options);
  engine.start_model("m");
  return ask(engine, "m");
}

}  // namespace headrace
