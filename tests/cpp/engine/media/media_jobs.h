#pragma once

// Requests with images and clips, and what the fake model must make of them.

#include <cstdint>
#include <random>
#include <vector>

#include "fakes/fake_engine.h"
#include "fakes/fake_media.h"
#include "headrace/request.h"

namespace headrace::testing {

struct MediaJob {
  std::vector<int32_t> prompt{};
  std::vector<MediaInput> media{};
  int32_t max_tokens = 8;

  RequestOptions options() const;
};

/// The token that stands where rows of media go.
inline constexpr int32_t kPlaceholder = 7;

/// Puts an image, or a clip, of h x w rows (a grid over time for every two frames, or four where
/// two grids are merged) behind what the prompt has.
void add_pixels(MediaJob& job, uint64_t seed, int64_t frames, int32_t h, int32_t w,
                int32_t group = 1);
/// Puts embeddings there, in two runs with a token between them if they have more than one row.
void add_embeddings(MediaJob& job, uint64_t seed, int32_t rows, int32_t added, int32_t hidden_size);
void add_text(MediaJob& job, int32_t count, int32_t first_token);

/// Text, images, clips and embeddings, of few contents, so that prefixes and items are shared.
MediaJob random_job(std::mt19937& random, int32_t group, int32_t hidden_size);

/// What the fake model generates: worked out row by row.
std::vector<int32_t> expected_tokens(const MediaJob& job, const FakeTower& tower, int32_t count);

}  // namespace headrace::testing
