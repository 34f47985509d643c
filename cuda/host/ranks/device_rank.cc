#include "cuda/host/ranks/device_rank.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "base/check.h"

namespace headrace::cuda {

namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr size_t kWordBytes = 256;  // begun [kMostRanks], exchanges, counter

std::atomic_ref<uint32_t> word(const PinnedBuffer& stop) {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(stop.data()));
}

/// Two models' blocks that wait leave a quarter of the GPU.
int32_t most_blocks(const CudaContext& gpu) {
  return std::max(gpu.properties().multiprocessors * 3 / 8, 1);
}

/// This GPU is the thread's while it lives; the one before comes back then.
class Visit {
 public:
  explicit Visit(CudaContext& context) : context_(context) {
    context.check(context.api().current_device(&before_), "asking for the thread's GPU");
    context.enter();
  }
  // What fails here fails again, with a message, at the thread's next call.
  ~Visit() { static_cast<void>(context_.api().set_device(before_)); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  CudaContext& context_;
  int before_ = 0;
};

}  // namespace

DeviceRank::DeviceRank(CudaContext& context, DeviceMemory& memory, std::shared_ptr<RankGroup> group,
                       int32_t rank, RankWays ways)
    : context_(context), group_(std::move(group)), ways_(std::move(ways)) {
  HEADRACE_CHECK(rank >= 0 && rank < group_->count(), rank);
  if (group_->count() > kMostRanks) {
    throw_error(ErrorCode::kUnsupported, "a model runs on up to ", kMostRanks, " GPUs, not on ",
                group_->count(), ": lower tensor_parallel_size.");
  }
  context_.enter();
  memory_ = memory.allocate(2 * kPieceBytes + kWordBytes);
  stop_ = PinnedBuffer(context_, sizeof(uint32_t));
  word(stop_).store(kGoOn);
  links_.rank = rank;
  links_.count = group_->count();
  links_.piece_bytes = kPieceBytes;
  links_.pieces[rank] = static_cast<std::byte*>(memory_.data);
  links_.begun[rank] = reinterpret_cast<uint32_t*>(links_.pieces[rank] + 2 * kPieceBytes);
  links_.exchanges = links_.begun[rank] + kMostRanks;
  links_.counter = reinterpret_cast<int32_t*>(links_.begun[rank] + kMostRanks + 1);
  links_.stop = reinterpret_cast<uint32_t*>(stop_.data());
  clear_words();
  context_.share_work();
  group_->enter(*this);
}

DeviceRank::~DeviceRank() {
  group_->leave(*this);
  // A GPU that is lost ends nothing by itself.
  if (const auto mine = clique(); mine != nullptr && context_.lost()) mine->abort(links_.rank);
}

void DeviceRank::clear_words() {
  context_.check(context_.api().fill_zero(links_.begun[links_.rank], kWordBytes, context_.stream()),
                 "clearing what ranks say");
  context_.wait();
}

const RankLinks& DeviceRank::links() {
  if (!linked_) link();
  return links_;
}

bool DeviceRank::first_runs_ahead() {
  links();
  return first_runs_ahead_;
}

// NCCL if one of them asks for it or doesn't reach another. What decides which exchanges there are
// is the same on all of them from now on.
void DeviceRank::link() {
  const std::span<const RankGroup::Shown> all = group_->exchange(links_.rank, {.more = this});
  reaches_all_ = ways_.use_peers;
  gpus_.clear();
  links_.most_blocks = kMostExchangeBlocks;
  for (int32_t r = 0; r < links_.count; ++r) {
    others_[r] = static_cast<const DeviceRank*>(all[static_cast<size_t>(r)].more);
    const DeviceProperties& gpu = others_[r]->context_.properties();
    gpus_ += str_cat(r == 0 ? "" : ", ", gpu.name, " ", gpu.uuid);
    reaches_all_ = reaches_all_ && reaches(*others_[r]);
    links_.most_blocks = std::min(links_.most_blocks, most_blocks(others_[r]->context_));
  }
  first_runs_ahead_ = others_[0]->ways_.runs_ahead;
  group_->meet();
  bool peers = true;
  for (int32_t r = 0; r < links_.count; ++r) peers = peers && others_[r]->reaches_all_;
  if (peers) {
    link_peers();
  } else {
    link_by_nccl();
  }
  group_->meet();  // what the others have shown is theirs again
  linked_ = true;
}

bool DeviceRank::reaches(const DeviceRank& other) {
  const int32_t device = other.context_.device();
  if (device == context_.device()) return true;
  bool can = false;
  context_.check(context_.api().can_reach(context_.device(), device, &can),
                 "asking which GPUs it reaches");
  return can;
}

void DeviceRank::link_peers() {
  for (int32_t r = 0; r < links_.count; ++r) {
    const DeviceRank& other = *others_[r];
    if (other.context_.device() != context_.device()) {
      context_.check(context_.api().reach(other.context_.device()),
                     "reaching another GPU's memory");
    }
    links_.pieces[r] = other.links_.pieces[r];
    links_.begun[r] = other.links_.begun[r];
  }
}

// The first exchanges take NCCL's memory and connect, which a recorded step mustn't, nor may it
// wait for the others on the host.
void DeviceRank::link_by_nccl() {
  std::shared_ptr<NcclClique> made;
  if (links_.rank == 0) {
    int version = 0;
    context_.check(context_.api().runtime_version(&version), "asking for CUDA's version");
    std::vector<int> devices;
    for (int32_t r = 0; r < links_.count; ++r) devices.push_back(others_[r]->context_.device());
    made = std::make_shared<NcclClique>(Nccl::load(ways_.nccl, version / 1000), devices);
  }
  const auto all = group_->exchange(links_.rank, {.more = &made});
  made = *static_cast<const std::shared_ptr<NcclClique>*>(all[0].more);
  {
    const MutexLock lock(clique_mutex_);
    clique_ = made;
  }
  group_->meet();  // all have taken it
  context_.enter();
  links_.carrier = this;
  links_.pieces[0] = static_cast<std::byte*>(memory_.data);
  links_.piece_bytes = 2 * kPieceBytes / links_.count / 256 * 256;
  for (const int64_t bytes : {int64_t{256}, links_.piece_bytes}) {
    all_gather(links_.pieces[0], bytes, context_.stream());
  }
  context_.wait();
}

std::string DeviceRank::agree(const std::string& reason) {
  const std::string mine = reason.empty() ? "" : str_cat("cuda:", context_.device(), ": ", reason);
  std::string out;
  for (const RankGroup::Shown& other : group_->exchange(links_.rank, {.more = &mine})) {
    if (out.empty()) out = *static_cast<const std::string*>(other.more);
  }
  group_->meet();
  return out;
}

// Words count no exchanges by NCCL, and nobody waits for them.
void DeviceRank::leave_peers() {
  ways_.use_peers = false;
  link();
}

std::shared_ptr<NcclClique> DeviceRank::clique() {
  const MutexLock lock(clique_mutex_);
  return clique_;
}

void DeviceRank::all_gather(std::byte* memory, int64_t bytes, Stream stream) {
  clique()->all_gather(links_.rank, memory, bytes, stream);
}

void DeviceRank::expect_answers() {
  if (word(stop_).load(std::memory_order_acquire) != kNoAnswer) return;
  throw_error(ErrorCode::kDevice, "GPU ", context_.device(), " (", context_.properties().name,
              ") has waited for another GPU of the model for ", kLongestWaitSeconds,
              " s, in vain.");
}

void DeviceRank::expect_anew() {
  expect_answers();
  if (word(stop_).load(std::memory_order_acquire) == kFailed) throw OtherRankFailed();
}

// By value: the others may still read when this rank goes on.
RecordState DeviceRank::agree(RecordState own) {
  if (links().carrier == nullptr) return own;
  TensorView mine;
  mine.shape = Shape({1, static_cast<int64_t>(own)});
  RecordState least = own;
  for (const auto& other : group_->exchange(links_.rank, {.x = mine})) {
    least = std::min(least, static_cast<RecordState>(other.x.cols()));
  }
  return least;
}

const std::vector<int64_t>& DeviceRank::columns(int64_t own, int64_t all) {
  const auto found = std::ranges::find_if(
      columns_, [&](const Columns& known) { return known.own == own && known.all == all; });
  if (found != columns_.end()) return found->begins;
  TensorView mine;
  mine.shape = Shape({1, own});
  Columns added{.own = own, .all = all, .begins = {0}};
  for (const auto& other : group_->exchange(links_.rank, {.x = mine})) {
    added.begins.push_back(added.begins.back() + other.x.cols());
  }
  group_->meet();
  HEADRACE_CHECK(added.begins.back() == all, added.begins.back(), " columns of ", all);
  columns_.push_back(std::move(added));
  return columns_.back().begins;
}

// By NCCL: the others stop waiting for the one that failed. Its own communicator is aborted when
// no rank is within a call any more (settle), for with the last one all of them go.
void DeviceRank::failed(int32_t first) noexcept {
  word(stop_).store(kFailed, std::memory_order_release);
  const auto mine = clique();
  if (mine != nullptr && first != links_.rank) mine->abort(links_.rank);
}

void DeviceRank::drop_records() noexcept try {
  const Visit visit(context_);
  ways_.drop_records();
} catch (...) {  // as in settle(), or there is no memory to say it
}

// No kernel waits any more: what is queued ends. If the GPU is lost, the next step says so.
void DeviceRank::settle() noexcept try {
  const Visit visit(context_);
  if (const auto mine = clique()) mine->abort(links_.rank);
  context_.wait();
} catch (...) {
}

// Where this fails, the word stays: the next step ends at once, and this is done again.
void DeviceRank::forget() noexcept try {
  const Visit visit(context_);
  {
    const MutexLock lock(clique_mutex_);
    if (clique_ != nullptr) linked_ = false;
    clique_.reset();
  }
  columns_.clear();  // a rank that failed may lack what the others had just heard
  clear_words();
  word(stop_).store(kGoOn, std::memory_order_release);
} catch (...) {
}

}  // namespace headrace::cuda
