#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/content_hash.h"
#include "model/packed_file.h"

namespace headrace {

namespace {

/// Appends tensors one behind the other.
class TensorWriter {
 public:
  TensorWriter(AtomicFile& file, Backend& backend)
      : file_(file),
        backend_(backend),
        piece_(std::make_unique_for_overwrite<std::byte[]>(kHashPiece)) {}

  /// `data`: the tensor's bytes in the backend's memory. Sets its hash.
  void append(const void* data, PackedTensor& tensor) {
    std::vector<uint64_t> hashes;
    for (uint64_t at = 0; at < tensor.padded_bytes(); at += kHashPiece) {
      const auto size =
          static_cast<size_t>(std::min<uint64_t>(kHashPiece, tensor.padded_bytes() - at));
      const auto held =
          static_cast<size_t>(std::min<uint64_t>(size, tensor.bytes - std::min(at, tensor.bytes)));
      backend_.read_back(static_cast<const std::byte*>(data) + at, piece_.get(), held);
      std::fill(piece_.get() + held, piece_.get() + size, std::byte{0});
      hashes.push_back(content_hash(piece_.get(), size));
      file_.append(piece_.get(), size);
    }
    tensor.hash = combine_hashes(hashes);
  }

 private:
  AtomicFile& file_;
  Backend& backend_;
  std::unique_ptr<std::byte[]> piece_;
};

}  // namespace

void write_packed(AtomicFile& file, PackedHeader header, const ModelSources& sources,
                  WeightReader& reader, Backend& backend) {
  header.tensors = list_packed_tensors(sources, backend, header.storage);
  const size_t header_bytes = format_packed_header(header).size();
  file.append_zeros(header_bytes);
  TensorWriter writer(file, backend);
  auto tensor = header.tensors.begin();
  for (const MatrixSource* source : sources.matrices()) {
    const auto weight = reader.matrix(*source);
    HEADRACE_CHECK(weight->bytes() == tensor->bytes, source->name, ": ", weight->bytes());
    writer.append(weight->data(), *tensor++);
  }
  for (const VectorSource* source : sources.vectors()) {
    const DeviceVector vector = reader.vector(*source);
    writer.append(vector.view.data, *tensor++);
  }
  // The header is as long with the hashes as it was without.
  const std::string text = format_packed_header(header);
  HEADRACE_CHECK(text.size() == header_bytes, text.size());
  file.overwrite(0, text.data(), text.size());
}

}  // namespace headrace
