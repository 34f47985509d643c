#include "engine/media/encoder_stage.h"

#include <algorithm>

namespace headrace::internal {

EncoderStage::EncoderStage(Parts parts, StepRunner& runner)
    : parts_(std::move(parts)), runner_(runner), cache_(parts_.limits.cache_bytes) {}

void EncoderStage::add(SeqId id, int32_t priority, RequestMedia& media) {
  requests_.emplace(std::pair(priority, id), &media);
}

void EncoderStage::remove(SeqId id) noexcept {
  std::erase_if(requests_, [&](const auto& request) { return request.first.second == id; });
  if (wanted_ && wanted_->id == id) wanted_.reset();
  if (work_ && work_->wanted.id == id && !hand_over()) work_.reset();
}

/// The unit that is being encoded to the most senior other request that has its item.
bool EncoderStage::hand_over() noexcept {
  Wanted& wanted = work_->wanted;
  const MediaDigest& digest = wanted.media->items()[wanted.item].digest;
  for (const auto& [place, media] : requests_) {
    const std::vector<RequestItem>& items = media->items();
    const auto same = std::ranges::find(items, digest, &RequestItem::digest);
    if (same == items.end()) continue;
    wanted = {place.second, media, static_cast<size_t>(same - items.begin()), wanted.unit};
    return true;
  }
  return false;
}

size_t EncoderStage::bytes() const noexcept { return cache_.bytes() + (work_ ? work_->bytes : 0); }

void EncoderStage::prepare(Scheduler& scheduler) {
  if (requests_.empty()) return;
  wanted_.reset();
  pinned_bytes_ = 0;
  reserved_bytes_ = work_ ? work_->bytes : 0;
  for (const auto& [place, media] : requests_) media->unpin();
  for (const auto& [place, media] : requests_) {
    const SeqId id = place.second;
    const std::optional<int32_t> next = scheduler.next_position(id);
    if (next) scheduler.set_ready(id, pin_ahead(id, *media, *next));
  }
}

/// Pins what the rows from `next` on need, a step's at most. Returns the first row that is not
/// ready, or not looked at.
int32_t EncoderStage::pin_ahead(SeqId id, RequestMedia& media, int32_t next) {
  const int64_t horizon = int64_t{next} + parts_.max_rows;
  for (const MediaPlace& place : media.places()) {
    if (place.end() <= next) continue;
    int32_t position = std::max(place.position, next);
    while (position < place.end()) {
      if (position >= horizon) return position;
      const int32_t row = place.first_row + (position - place.position);
      const Wanted wanted{id, &media, place.item, media.items()[place.item].unit_of(row)};
      if (!pin(wanted)) return position;
      const MediaUnit& unit = wanted.what();
      position += unit.first_row + unit.rows - row;
    }
  }
  return kAlwaysReady;
}

bool EncoderStage::pin(const Wanted& wanted) {
  auto rows = cache_.find(wanted.key());
  if (rows == nullptr) {
    if (!wanted_) {
      wanted_ = wanted;
      const bool is_begun = work_ && work_->wanted.key() == wanted.key();
      if (!is_begun) {
        reserved_bytes_ +=
            unit_bytes(wanted.media->items()[wanted.item], wanted.what(), parts_.limits);
      }
    }
    return false;
  }
  if (rows.use_count() == 2) {  // the cache's and this one: nobody has pinned it
    if (pinned_bytes_ + reserved_bytes_ + rows->bytes > cache_.capacity()) return false;
    pinned_bytes_ += rows->bytes;
  }
  wanted.media->pin(wanted.item, wanted.unit, std::move(rows));
  note(wanted, found_rows_);
  return true;
}

std::optional<EncoderStage::Failure> EncoderStage::work(Scheduler& scheduler, bool others_run) {
  if (requests_.empty()) return std::nullopt;
  double spent = 0;
  do {
    if (!work_) prepare(scheduler);
    if (!work_ && !wanted_) return std::nullopt;
    const Wanted at = work_ ? work_->wanted : *wanted_;
    try {
      if (!work_ && !begin()) return std::nullopt;
      spent += static_cast<double>(at.what().rows) / work_->pieces;
      if (advance()) finish();
    } catch (...) {
      work_.reset();
      return Failure{at.id, at.item, std::current_exception()};
    }
  } while (others_run && spent < parts_.max_tokens);
  return std::nullopt;
}

/// False: there is no room for it yet.
bool EncoderStage::begin() {
  const RequestItem& item = wanted_->media->items()[wanted_->item];
  const MediaUnit& unit = wanted_->what();
  const size_t bytes = unit_bytes(item, unit, parts_.limits);
  if (!cache_.make_room(bytes)) return false;
  Work work{*wanted_, runner_.allocate_rows(unit.rows, item.outputs), bytes, nullptr, 1};
  if (item.has_pixels()) {
    const std::vector<float> patches = unit_patches(item, unit);
    work.run = parts_.tower->begin(patches.data(), unit.grid, work.rows.tensors);
    work.pieces = std::max(1, work.run->num_pieces());
  }
  work_ = std::move(work);
  return true;
}

/// Whether the unit is encoded now.
bool EncoderStage::advance() {
  if (work_->run != nullptr) return work_->run->advance();
  const MediaUnit& unit = work_->wanted.what();
  const EmbeddingInput& input = work_->wanted.media->items()[work_->wanted.item].embeddings;
  const std::span<const float> values(*input.values);
  const auto hidden = static_cast<size_t>(parts_.limits.hidden_size);
  for (size_t i = 0; i < work_->rows.tensors.size(); ++i) {
    const size_t first = i * static_cast<size_t>(input.rows) + static_cast<size_t>(unit.first_row);
    runner_.upload_rows(values.subspan(first * hidden, static_cast<size_t>(unit.rows) * hidden),
                        work_->rows.tensors[i]);
  }
  return true;
}

void EncoderStage::finish() {
  const Wanted wanted = work_->wanted;
  const MediaUnit& unit = wanted.what();
  auto rows = std::make_shared<const EncodedRows>(
      EncodedRows{std::move(work_->rows), work_->bytes, unit.first_row, unit.rows});
  work_.reset();
  cache_.insert(wanted.key(), std::move(rows));
  note(wanted, encoded_rows_);
}

/// Counts a unit that has come for a request, once.
void EncoderStage::note(const Wanted& wanted, uint64_t& counter) noexcept {
  RequestItem& item = wanted.media->items()[wanted.item];
  if (std::exchange(item.is_counted[wanted.unit], uint8_t{1}) != 0) return;
  counter += static_cast<uint64_t>(wanted.what().rows);
}

}  // namespace headrace::internal
