#include "text/regex/engine.h"

#include <utility>

#include "text/regex/machine.h"
#include "text/regex/pattern/syntax.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

class GeneralRegex final : public Regex {
 public:
  explicit GeneralRegex(Program program) : program_(std::move(program)) {}

  std::optional<Range> find(std::string_view text, size_t from, Fuel* fuel) const override {
    return as_range(Machine(program_, text, fuel).find(from));
  }

  void find_all(std::string_view text, uint32_t shift, std::vector<Range>* matches,
                Fuel* fuel) const override {
    Machine machine(program_, text, fuel);
    add_all(text, shift, matches, [&](size_t from) { return as_range(machine.find(from)); });
  }

 private:
  static std::optional<Range> as_range(std::optional<Machine::Match> match) {
    return match ? std::optional(Range{static_cast<uint32_t>(match->begin),
                                       static_cast<uint32_t>(match->end)})
                 : std::nullopt;
  }

  Program program_;
};

}  // namespace

std::shared_ptr<const Regex> compile_general(std::string_view pattern) {
  return std::make_shared<GeneralRegex>(compile_program(parse_pattern(pattern)));
}

}  // namespace headrace::text
