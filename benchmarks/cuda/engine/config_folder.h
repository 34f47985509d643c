#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace headrace::bench {

/// A folder with a config.json, gone with this object.
class ConfigFolder {
 public:
  ConfigFolder(const std::string& name, const std::string& config_json)
      : path_(std::filesystem::temp_directory_path() /
              ("headrace-" + name + "-" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << config_json;
  }
  ConfigFolder(const ConfigFolder&) = delete;
  ConfigFolder& operator=(const ConfigFolder&) = delete;
  ~ConfigFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace::bench
