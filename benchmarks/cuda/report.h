#pragma once

// What the programs of this folder measure, row by row. table.py turns the rows of all of them into
// the table of the GPU's numbers and their targets.

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace headrace::bench {

/// One number. `share` is how much of the limit, or of the peer's speed, it reaches: 0 if it is
/// held against nothing.
struct Row {
  std::string number;  ///< its name in table.py; others are details
  std::string work;    ///< what ran: shapes and conditions
  double measured = 0;
  std::string unit;
  double limit = 0;  ///< in the same unit
  std::string limit_name;
  double share = 0;
};

/// More is better: share = measured / limit.
Row rate_row(std::string number, std::string work, double measured, std::string unit, double limit,
             std::string limit_name);
/// Less is better: share = limit / measured.
Row time_row(std::string number, std::string work, double measured, std::string unit, double limit,
             std::string limit_name);

/// Prints rows as they come, and appends them to a file as lines of JSON, each written out at once:
/// a program that dies later loses none.
class Report {
 public:
  /// "" = no file. Throws std::runtime_error for one that can't be opened.
  explicit Report(const std::string& file);
  void add(const Row& row);
  /// A number that can't be had here.
  void missing(const std::string& number, const std::string& why);
  /// Of the rows from here on: kernels that failed their trial, so that others ran instead.
  void mark(std::vector<std::string> failed_trials) { failed_trials_ = std::move(failed_trials); }

 private:
  void write(const std::string& line);

  std::ofstream file_;
  std::vector<std::string> failed_trials_;
};

}  // namespace headrace::bench
