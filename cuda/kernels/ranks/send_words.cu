#include "cuda/kernels/ranks/send_words.h"

#include "cuda/kernels/ranks/collect.cuh"

namespace headrace::cuda {

void send_words(const SendArgs& args, Stream stream) {
  const RankLinks links = place_parts(args.links, args.count * 4);
  if (args.count == 0) return;
  HEADRACE_CHECK(args.count * 4 <= links.piece_bytes, args.count);
  auto* const words = reinterpret_cast<float*>(args.words);  // copied bit for bit
  Parts parts{.rows = 1};
  for (int r = 0; r < kMostRanks; ++r) parts.begins[r + 1] = args.count;
  if (links.rank == 0) put_part(links, words, args.count, 1, args.count, stream);
  bring_parts(links, stream);
  collect_parts(links, parts, links.rank == 0 ? nullptr : words, args.count, stream);
}

}  // namespace headrace::cuda
