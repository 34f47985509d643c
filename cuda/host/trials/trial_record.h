#pragma once

#include <filesystem>
#include <string>

namespace headrace::cuda {

/// Remembers that a GPU's kernels have passed all trials, in a file of a folder of the user's: once
/// for each build, driver and GPU. Failures aren't remembered: they are tried again.
class TrialRecord {
 public:
  /// `key`: all that what the kernels do may depend on. No `folder`: nothing is
  /// remembered.
  TrialRecord(const std::string& folder, std::string key);

  /// Whether keep() was called with this key. A file that isn't the user's own, that others can
  /// write or that holds anything else counts as none.
  bool passed() const;
  /// A folder that can't be written is no error: the next load tries the kernels again.
  void keep() const noexcept;

 private:
  std::string key_;
  std::filesystem::path path_;  // empty: nothing is remembered
};

}  // namespace headrace::cuda
