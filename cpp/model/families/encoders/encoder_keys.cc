#include "model/families/encoders/encoder_keys.h"

namespace headrace {

namespace {

constexpr int64_t kMaxLabels = 1 << 16;

}  // namespace

int32_t read_labels(ConfigReader& reader, const ModelConfig& config) {
  if (!config.architecture.ends_with("ForSequenceClassification")) return 0;
  const JsonValue* names = reader.find("id2label");
  if (names == nullptr) {
    return static_cast<int32_t>(reader.integer("num_labels", 2, 1, kMaxLabels));
  }
  const size_t count = names->is_object() ? names->size() : 0;
  if (count < 1 || count > static_cast<size_t>(kMaxLabels)) {
    reader.fail_value("id2label", "must name each label");
  }
  return static_cast<int32_t>(count);
}

}  // namespace headrace
