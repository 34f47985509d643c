#pragma once

// The rows that a benchmark wrote.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace headrace::bench {

/// A file of rows that is gone with this object.
class RowsFile {
 public:
  RowsFile()
      : path_(std::filesystem::path(testing::TempDir()) /
              (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
               ".rows.jsonl")) {
    std::filesystem::remove(path_);
  }
  ~RowsFile() { std::filesystem::remove(path_); }

  std::string path() const { return path_.string(); }

  /// By number; fails the test for one that occurs twice.
  std::map<std::string, nlohmann::json> read() const {
    std::map<std::string, nlohmann::json> out;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json row = nlohmann::json::parse(line);
      EXPECT_TRUE(out.emplace(row.at("number"), row).second) << line;
    }
    return out;
  }

 private:
  std::filesystem::path path_;
};

inline void expect_measured(const nlohmann::json& row) {
  ASSERT_FALSE(row.contains("missing")) << row;
  EXPECT_GT(row.at("measured").get<double>(), 0) << row;
  EXPECT_TRUE(std::isfinite(row.at("share").get<double>())) << row;
  EXPECT_EQ(row.at("limit").get<double>() > 0, row.at("share").get<double>() > 0) << row;
}

}  // namespace headrace::bench
