#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakes/fake_constraint.h"

namespace headrace::testing {

inline constexpr const char* kMessages = R"([{"role": "user", "content": "Hi"}])";

/// A model folder with a tokenizer of bytes and a chat template, which lives as long as the object.
/// Id 0 ends an output (as for fake models), id 1 begins a text, and a byte's id is 2 more.
class ChatFolder {
 public:
  static constexpr int32_t kVocabulary = 258;

  ChatFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("headrace_chat_" + std::to_string(getpid()) + "_" + std::to_string(++count));
    std::filesystem::create_directories(path_);
  }
  ~ChatFolder() { std::filesystem::remove_all(path_); }
  ChatFolder(const ChatFolder&) = delete;
  ChatFolder& operator=(const ChatFolder&) = delete;

  std::string path() const { return path_.string(); }

  void write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

  void write_tokenizer() const {
    write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
    std::string vocabulary = R"("</s>": 0, "<s>": 1)";
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary += ", \"" + letter(byte) + "\": " + std::to_string(byte + 2);
    }
    const auto added = [](int id, const char* text) {
      return R"({"id": )" + std::to_string(id) + R"(, "content": ")" + text +
             R"(", "special": true, "normalized": false, "lstrip": false, "rstrip": false,
                "single_word": false})";
    };
    write("tokenizer.json", R"({"version": "1.0", "added_tokens": [)" + added(0, "</s>") + ", " +
                                added(1, "<s>") +
                                R"(], "pre_tokenizer": {"type": "ByteLevel",
                                "add_prefix_space": false, "use_regex": false},
                                "decoder": {"type": "ByteLevel"},
                                "model": {"type": "BPE", "vocab": {)" +
                                vocabulary + R"(}, "merges": []}})");
  }

 private:
  /// What stands for a byte in a vocabulary of bytes, in JSON.
  static std::string letter(int byte) {
    const auto shown = [](int value) {
      return (value >= '!' && value <= '~') || (value >= 0xA1 && value != 0xAD);
    };
    int code = byte;
    if (!shown(byte)) {
      code = 256;
      for (int other = 0; other < byte; ++other) code += shown(other) ? 0 : 1;
    }
    char escaped[8];
    snprintf(escaped, sizeof escaped, "\\u%04x", code);
    return escaped;
  }

  std::filesystem::path path_;
};

inline std::vector<int32_t> byte_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(2 + static_cast<uint8_t>(c));
  return ids;
}

/// An output that is these ids, and then ends.
inline std::shared_ptr<TokenConstraint> says(std::vector<int32_t> ids) {
  return FakeConstraint::make([ids = std::move(ids)](std::span<const int32_t> output) {
    if (output.size() >= ids.size()) return Following{{}, true};
    return Following{{ids[output.size()]}, false};
  });
}
inline std::shared_ptr<TokenConstraint> says(std::string_view text) { return says(byte_ids(text)); }

}  // namespace headrace::testing
