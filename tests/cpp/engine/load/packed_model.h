#pragma once

// A golden checkpoint's folder to pack, damage and run.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cpp/model/checkpoint_files.h"
#include "cpp/model/test_json.h"
#include "headrace/engine.h"

namespace headrace {

/// A copy of a golden case's files in a new folder, and what is packed from it.
class PackedModel {
 public:
  explicit PackedModel(const std::string& golden_case = "qwen2");

  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }
  /// Loads the packed file "packed" of this folder.
  ModelOptions options() const;
  void pack(ModelOptions options) const;
  void pack() const { pack(options()); }

  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& bytes) const {
    folder_.write(name, bytes);
  }
  /// Replaces the packed file by one with this change to its header, which stays well formed.
  void edit_header(const std::function<void(Json&)>& change) const;
  /// The same to a text of __metadata__ that is a JSON object itself.
  void edit_metadata(const std::string& key, const std::function<void(Json&)>& change) const;
  /// Names in the folder, sorted.
  std::vector<std::string> names() const;

 private:
  TempFolder folder_;
};

/// What a model answers, bit by bit.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer ask(Engine& engine, const std::string& model);
/// Installs, asks and releases.
Answer answer_of(const ModelOptions& options);

}  // namespace headrace
