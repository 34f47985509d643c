#include "cpp/engine/media/media_jobs.h"

#include <algorithm>

namespace headrace::testing {

RequestOptions MediaJob::options() const {
  RequestOptions out;
  out.prompt_token_ids = prompt;
  out.sampling = {.temperature = 0, .max_tokens = max_tokens, .ignore_eos = true};
  out.media = media;
  return out;
}

void add_pixels(MediaJob& job, uint64_t seed, int64_t frames, int32_t h, int32_t w, int32_t group) {
  constexpr int32_t kSide = FakeTower::kPatch * FakeTower::kMerge;
  MediaInput item;
  item.video = frames > 1;
  item.pixels = fake_pixels(seed, frames, int64_t{h} * kSide, int64_t{w} * kSide);
  const auto grids =
      static_cast<int32_t>((frames + FakeTower::kTemporal - 1) / FakeTower::kTemporal);
  const int32_t t = (grids + group - 1) / group;
  MediaRun run{static_cast<int32_t>(job.prompt.size()), t * h * w, 0, {t, h, w}, {}};
  for (int32_t i = 0; i < t; ++i) run.steps.push_back(3 * i);
  item.runs.push_back(run);
  job.prompt.insert(job.prompt.end(), static_cast<size_t>(run.count), kPlaceholder);
  job.media.push_back(std::move(item));
}

void add_embeddings(MediaJob& job, uint64_t seed, int32_t rows, int32_t added,
                    int32_t hidden_size) {
  MediaInput item;
  item.embeddings = fake_embeddings(seed, rows, added, hidden_size);
  const int32_t first = (rows + 1) / 2;
  for (const auto& [row, count] : {std::pair(0, first), std::pair(first, rows - first)}) {
    if (count == 0) continue;
    if (row > 0) job.prompt.push_back(11);
    item.runs.push_back({static_cast<int32_t>(job.prompt.size()), count, row, {}, {}});
    job.prompt.insert(job.prompt.end(), static_cast<size_t>(count), kPlaceholder);
  }
  job.media.push_back(std::move(item));
}

void add_text(MediaJob& job, int32_t count, int32_t first_token) {
  for (int32_t i = 0; i < count; ++i) job.prompt.push_back((first_token + i) % 40 + 1);
}

MediaJob random_job(std::mt19937& random, int32_t group, int32_t hidden_size) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  MediaJob job;
  job.max_tokens = pick(1, 12);
  add_text(job, pick(0, 2) * 10 + 1, 3);
  for (int left = pick(0, 3); left > 0; --left) {
    const auto seed = static_cast<uint64_t>(pick(0, 2));
    switch (pick(0, 3)) {
      case 0:
        add_pixels(job, seed, 1, pick(1, 2), pick(1, 5), group);
        break;
      case 1:
        add_pixels(job, seed, 2 * pick(2, 5), 2, 2, group);
        break;
      case 2:
        add_embeddings(job, seed, pick(1, 12), pick(0, 1), hidden_size);
        break;
      default:
        add_text(job, pick(5, 20), pick(0, 3));
    }
    if (pick(0, 1) == 0) add_text(job, pick(1, 9), pick(0, 1));
  }
  return job;
}

std::vector<int32_t> expected_tokens(const MediaJob& job, const FakeTower& tower, int32_t count) {
  std::vector<int32_t> seen = job.prompt;
  std::vector<std::array<int32_t, 3>> axes(job.prompt.size());
  int32_t next = 0;
  size_t at = 0;
  const auto text_until = [&](size_t end) {
    for (; at < end; ++at, ++next) axes[at] = {next, next, next};
  };
  for (const MediaInput& item : job.media) {
    const auto tensors = fake_rows(item, tower, kFakeHidden);
    for (const MediaRun& run : item.runs) {
      text_until(static_cast<size_t>(run.position));
      for (int32_t i = 0; i < run.count; ++i) {
        const auto row = static_cast<size_t>(run.first_row + i);
        std::vector<std::vector<float>> added;
        for (size_t k = 1; k < tensors.size(); ++k) added.push_back(tensors[k][row]);
        seen[static_cast<size_t>(run.position + i)] = given_token(tensors[0][row], added);
      }
      if (run.grid.t == 0) continue;
      int32_t largest = next;
      for (int32_t t = 0; t < run.grid.t; ++t) {
        for (int32_t h = 0; h < run.grid.h; ++h) {
          for (int32_t w = 0; w < run.grid.w; ++w, ++at) {
            axes[at] = {next + run.steps[static_cast<size_t>(t)], next + h, next + w};
            for (const int32_t axis : axes[at]) largest = std::max(largest, axis);
          }
        }
      }
      next = largest + 1;
    }
  }
  text_until(job.prompt.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    seen[i] = placed_token(seen[i], static_cast<int32_t>(i), axes[i]);
  }
  return fake_greedy(seen, count, FakeShape{}.vocab_size, 0,
                     next - static_cast<int32_t>(job.prompt.size()));
}

}  // namespace headrace::testing
