#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

namespace headrace::testing {

/// The folder of a tiny Llama without weights, which lives as long as the object.
class TinyFolder {
 public:
  explicit TinyFolder(const std::string& extra_keys = "", const std::string& layers = "2") {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("headrace_engine_" + std::to_string(getpid()) + "_" + std::to_string(++count));
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json")
        << R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 97,
               "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": )"
        << layers << R"(,
               "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
               "max_position_embeddings": 256, "rope_theta": 10000.0, "hidden_act": "silu",
               "tie_word_embeddings": false, "torch_dtype": "float32", "eos_token_id": 2)"
        << extra_keys << "}";
  }
  ~TinyFolder() { std::filesystem::remove_all(path_); }
  TinyFolder(const TinyFolder&) = delete;
  TinyFolder& operator=(const TinyFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace::testing
