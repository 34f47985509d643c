#include "benchmarks/cuda/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace headrace::bench {

Row rate_row(std::string number, std::string work, double measured, std::string unit, double limit,
             std::string limit_name) {
  return {std::move(number),
          std::move(work),
          measured,
          std::move(unit),
          limit,
          std::move(limit_name),
          limit > 0 ? measured / limit : 0.0};
}

Row time_row(std::string number, std::string work, double measured, std::string unit, double limit,
             std::string limit_name) {
  Row row = rate_row(std::move(number), std::move(work), measured, std::move(unit), limit,
                     std::move(limit_name));
  row.share = limit > 0 && measured > 0 ? limit / measured : 0.0;
  return row;
}

Report::Report(const std::string& file) {
  if (file.empty()) return;
  file_.open(file, std::ios::app);
  if (!file_) throw std::runtime_error("cannot write to " + file);
}

void Report::add(const Row& row) {
  std::string held;
  if (row.limit > 0) {
    char text[160];
    std::snprintf(text, sizeof text, ", %.0f %% of %s (%.4g)", 100 * row.share,
                  row.limit_name.c_str(), row.limit);
    held = text;
  }
  std::printf("%-22s %10.4g %-9s %s%s\n", row.number.c_str(), row.measured, row.unit.c_str(),
              row.work.c_str(), held.c_str());
  nlohmann::json line = {{"number", row.number},     {"work", row.work},
                         {"measured", row.measured}, {"unit", row.unit},
                         {"limit", row.limit},       {"limit_name", row.limit_name},
                         {"share", row.share}};
  if (!failed_trials_.empty()) line["failed_trials"] = failed_trials_;
  write(line.dump());
}

void Report::missing(const std::string& number, const std::string& why) {
  std::printf("%-22s not measured: %s\n", number.c_str(), why.c_str());
  write(nlohmann::json{{"number", number}, {"missing", why}}.dump());
}

void Report::write(const std::string& line) {
  std::fflush(stdout);
  if (file_.is_open()) file_ << line << std::endl;
}

}  // namespace headrace::bench
