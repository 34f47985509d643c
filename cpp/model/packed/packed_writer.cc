#include "model/packed/packed_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "model/packed/packed_file.h"

namespace headrace {

PackedWriter::PackedWriter(AtomicFile& file, PackedHeader header, TensorCopy copy)
    : file_(file),
      header_(std::move(header)),
      copy_(std::move(copy)),
      header_bytes_(format_packed_header(header_).size()),
      piece_(std::make_unique_for_overwrite<std::byte[]>(kHashPiece)) {
  file_.append_zeros(header_bytes_);
}

void PackedWriter::append(const void* data, size_t bytes) {
  PackedTensor& tensor = header_.tensors.at(next_++);
  HEADRACE_CHECK(bytes == tensor.bytes, tensor.name, ": ", bytes);
  std::vector<uint64_t> hashes;
  for (uint64_t at = 0; at < tensor.padded_bytes(); at += kHashPiece) {
    const auto size =
        static_cast<size_t>(std::min<uint64_t>(kHashPiece, tensor.padded_bytes() - at));
    const auto held =
        static_cast<size_t>(std::min<uint64_t>(size, tensor.bytes - std::min(at, tensor.bytes)));
    copy_(static_cast<const std::byte*>(data) + at, piece_.get(), held);
    std::fill(piece_.get() + held, piece_.get() + size, std::byte{0});
    hashes.push_back(content_hash(piece_.get(), size));
    file_.append(piece_.get(), size);
  }
  tensor.hash = combine_hashes(hashes);
}

void PackedWriter::finish() {
  HEADRACE_CHECK(next_ == header_.tensors.size(), next_);
  // The header is as long with the hashes as it was without.
  const std::string text = format_packed_header(header_);
  HEADRACE_CHECK(text.size() == header_bytes_, text.size());
  file_.overwrite(0, text.data(), text.size());
}

void write_packed(AtomicFile& file, PackedHeader header, std::span<const ModelSources> ranks,
                  WeightReader& reader, Backend& backend) {
  header.tensors.clear();
  for (const ModelSources& sources : ranks) {
    std::ranges::move(list_packed_tensors(sources, backend, header.storage),
                      std::back_inserter(header.tensors));
  }
  PackedWriter writer(
      file, std::move(header),
      [&backend](const void* from, void* to, size_t bytes) { backend.read_back(from, to, bytes); });
  for (const ModelSources& sources : ranks) {
    for (const MatrixSource* source : sources.matrices()) {
      const auto weight = reader.matrix(*source);
      writer.append(weight->data(), weight->bytes());
    }
    for (const VectorSource* source : sources.vectors()) {
      const DeviceVector vector = reader.vector(*source);
      writer.append(vector.view.data, vector.bytes());
    }
  }
  writer.finish();
}

}  // namespace headrace
