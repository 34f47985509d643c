#include "model/weights/weight_loader.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "backend/ranks/rank_group.h"
#include "base/check.h"

namespace headrace {

namespace {

template <class T>
T load_as(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + static_cast<size_t>(i) * sizeof(T),
              sizeof(T));
  return value;
}

float number_at(const CheckpointTensor& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::kF32:
      return load_as<float>(tensor.data, i);
    case DType::kBF16:
      return bf16_to_f32(load_as<uint16_t>(tensor.data, i));
    case DType::kF16:
      return f16_to_f32(load_as<uint16_t>(tensor.data, i));
    case DType::kF64:
      return static_cast<float>(load_as<double>(tensor.data, i));
    default:
      HEADRACE_CHECK(false, dtype_name(tensor.dtype));
      return 0.0f;
  }
}

[[noreturn]] void refuse_number(const std::string& name, int64_t element, float value) {
  throw TensorError(ErrorCode::kCorruptFile,
                    str_cat("tensor ", name, " holds ", value, " (its number ", element,
                            "), with which no answer can be computed: get the file again."));
}

/// Runs `pack`; an error of the backend names the tensor it concerns.
template <class Pack>
auto naming_tensor(const std::string& name, Pack pack) {
  try {
    return pack();
  } catch (const InternalError&) {
    throw;
  } catch (const TensorError&) {
    throw;
  } catch (const OtherRankFailed&) {
    throw;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kCancelled) throw;
    throw_error(e.code(), "while loading tensor ", name, ": ", e.what());
  }
}

}  // namespace

WeightLoader::WeightLoader(Backend& backend, const Checkpoint* checkpoint, DType storage,
                           float dummy_spread, const std::function<void()>* between)
    : backend_(backend),
      checkpoint_(checkpoint),
      storage_(storage),
      between_(between),
      dummy_(dummy_spread) {}

std::unique_ptr<PackedWeight> WeightLoader::matrix(const MatrixSource& source) {
  if (source.empty()) return nullptr;
  return naming_tensor(source.parts.front().name, [&] {
    WeightSpec spec{.parts = {},
                    .storage = source.kept_as(storage_),
                    .use = source.use,
                    .quant = source.quant,
                    .between = between_,
                    .experts = source.experts};
    if (checkpoint_ == nullptr) {
      spec.parts = dummy_.parts(source);
      return backend_.pack_weight(spec);
    }
    checkpoint_->check_unchanged();
    if (auto adopted = adopt(source)) return adopted;
    const SlicedParts own = slice_parts(source, stored_parts(source));
    spec.parts = own.parts;
    auto packed = backend_.pack_weight(spec);
    drop(source.parts);
    return packed;
  });
}

std::unique_ptr<PackedWeight> WeightLoader::adopt(const MatrixSource& source) {
  const bool plain = source.parts.size() == 1 && source.slice == nullptr && !source.transposed;
  if (!source.stays_mapped || !plain) return nullptr;
  const StoredPart& part = source.parts.front();
  if (part.codes != nullptr || part.numbers != nullptr || !part.shape.empty()) return nullptr;
  const CheckpointTensor& tensor = stored(part.name);
  if (tensor.dtype != source.kept_as(storage_)) return nullptr;
  auto out = backend_.adopt_rows(source.weight_shape(storage_), tensor.data,
                                 checkpoint_->keep_rows(tensor));
  if (out != nullptr) adopted_bytes_ += out->bytes();
  return out;
}

DeviceVector WeightLoader::vector(const VectorSource& source) {
  DeviceVector out;
  if (source.empty()) return out;
  naming_tensor(source.parts.front().name, [&] {
    const std::vector<float> numbers =
        checkpoint_ == nullptr ? dummy_.numbers(source) : stored_numbers(source);
    const WeightPart part{.data = numbers.data(),
                          .dtype = DType::kF32,
                          .n = static_cast<int64_t>(numbers.size()),
                          .k = 1,
                          .transposed = false,
                          .row_stride = 1,
                          .name = source.parts.front().name};
    out.view = source.is_float ? backend_.pack_float_vector(part, &out.buffer)
                               : backend_.pack_vector(part, &out.buffer);
    return 0;
  });
  return out;
}

std::vector<WeightPart> WeightLoader::stored_parts(const MatrixSource& source) const {
  std::vector<WeightPart> parts;
  const int64_t k = source.stored_k();
  for (const StoredPart& part : source.parts) {
    if (part.codes != nullptr) {
      WeightPart& codes = parts.emplace_back();
      codes.n = part.n;
      codes.k = k;
      codes.codes = part.codes.get();
      codes.name = part.codes->scales();
      continue;
    }
    if (part.numbers != nullptr) {
      parts.push_back({.dtype = part.numbers->dtype(),
                       .n = part.n,
                       .k = k,
                       .row_stride = k,
                       .numbers = part.numbers.get(),
                       .name = part.numbers->tensors().front()});
      continue;
    }
    const CheckpointTensor& tensor = stored(part.name);
    const auto* data = static_cast<const std::byte*>(tensor.data);
    parts.push_back({.data = data + static_cast<size_t>(part.offset) * dtype_size(tensor.dtype),
                     .dtype = tensor.dtype,
                     .n = part.n,
                     .k = k,
                     .transposed = source.transposed,
                     .row_stride = !source.transposed   ? k * part.step
                                   : part.shape.empty() ? part.n
                                                        : part.shape.back(),
                     .feature_stride = part.step,
                     .name = part.name});
  }
  return parts;
}

std::vector<float> WeightLoader::stored_numbers(const VectorSource& source) const {
  checkpoint_->check_unchanged();
  std::vector<float> out;
  for (size_t p = 0; p < source.parts.size(); ++p) {
    const StoredPart& part = source.parts[p];
    const CheckpointTensor& tensor = stored(part.name);
    for (const auto& [first, count] : own_numbers(source, p)) {
      for (int64_t i = first; i < first + count; ++i) {
        const int64_t element = part.offset + i * part.step;
        const float number = number_at(tensor, element);
        if (!std::isfinite(number)) refuse_number(part.name, element, number);
        out.push_back(source.offset == 0.0f ? number : number + source.offset);
      }
    }
  }
  drop(source.parts);
  return out;
}

const CheckpointTensor& WeightLoader::stored(const std::string& name) const {
  const CheckpointTensor* tensor = checkpoint_->find(name);
  HEADRACE_CHECK(tensor != nullptr, name);
  return *tensor;
}

void WeightLoader::drop(const std::vector<StoredPart>& parts) const {
  for (const StoredPart& part : parts) {
    if (part.codes == nullptr && part.numbers == nullptr) {
      checkpoint_->drop_pages(stored(part.name));
      continue;
    }
    const auto& names = part.codes != nullptr ? part.codes->tensors() : part.numbers->tensors();
    for (const std::string& name : names) checkpoint_->drop_pages(stored(name));
  }
}

}  // namespace headrace
