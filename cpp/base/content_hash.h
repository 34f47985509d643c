#pragma once

// Digests of contents, to notice accidental changes: the same on every machine and in every
// version, since files hold them. They protect from no one who sets out to fool them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace headrace {

/// 64-bit digest. A change within 8 bytes at a multiple of 8 always changes it, any other accident
/// all but always.
uint64_t content_hash(const void* data, size_t bytes) noexcept;

/// Long contents are cut into pieces of this many bytes, of which the last may be shorter; their
/// digest is content_hash() of the pieces' digests in order.
inline constexpr size_t kHashPiece = size_t{1} << 20;

/// Digest of a long content from those of its pieces.
uint64_t combine_hashes(std::span<const uint64_t> pieces) noexcept;

/// A piece of one of several contents.
struct HashPiece {
  size_t content = 0;   ///< index of the content
  uint64_t offset = 0;  ///< in it
  size_t bytes = 0;
};

/// Digests of contents of these sizes, whose pieces `hash_piece` gives: it is called on up to
/// `threads` threads, the caller's included, about in the order of the pieces. Throws what it
/// throws.
std::vector<uint64_t> parallel_hash(std::span<const uint64_t> sizes, int32_t threads,
                                    const std::function<uint64_t(const HashPiece&)>& hash_piece);

/// 16 digits.
std::string hash_text(uint64_t hash);

}  // namespace headrace
