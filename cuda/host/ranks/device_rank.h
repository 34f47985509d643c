#pragma once

// One GPU of several that compute a model together (Backend::join).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/ranks/rank_group.h"
#include "base/mutex.h"
#include "cuda/host/memory/device_memory.h"
#include "cuda/host/memory/pinned.h"
#include "cuda/host/ranks/nccl.h"
#include "cuda/host/step/step_graphs.h"
#include "cuda/kernels/ranks/rank_links.h"

namespace headrace::cuda {

/// How GPUs of a model meet.
struct RankWays {
  bool use_peers = true;   ///< CudaBackendOptions::use_peers
  std::string nccl;        ///< CudaBackendOptions::nccl
  bool runs_ahead = true;  ///< the rank's Backend::runs_ahead()
  /// Drops the rank's recorded steps. On RankGroup::reset()'s thread.
  std::function<void()> drop_records;
};

/// The memory in which this GPU meets the others, and where theirs is; or, if two of them don't
/// reach each other's, NCCL's communicator. The other ranks' may be used until their DeviceRank
/// goes: backends of a group end their steps before the first one goes, and a backend's recorded
/// steps go before its DeviceRank.
class DeviceRank final : public RankGroup::Member, public PartsCarrier {
 public:
  /// Takes 16 MiB. Throws Error(kUnsupported) for more than kMostRanks, and Error(kOutOfMemory) or
  /// Error(kDevice).
  DeviceRank(CudaContext& context, DeviceMemory& memory, std::shared_ptr<RankGroup> group,
             int32_t rank, RankWays ways);
  ~DeviceRank() override;
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  int32_t rank() const noexcept { return links_.rank; }
  /// What kernels take. The first call, and by NCCL the first behind a failure, waits for the other
  /// ranks': throws OtherRankFailed, what Nccl::load() throws, and Error(kDevice).
  const RankLinks& links();
  /// Backend::runs_ahead() of the first rank, by which all go. Waits and throws as links() does.
  bool first_runs_ahead();
  /// Throws Error(kDevice) if a kernel here has waited in vain for another rank: what this GPU has
  /// computed since is of no use.
  void expect_answers();
  /// Where a step begins: the same, and OtherRankFailed if a rank has failed, be it in this step or
  /// in an earlier one that this GPU couldn't forget.
  void expect_anew();
  /// What all ranks do with a step's record, of what each could do, where a carrier's calls are a
  /// part of it: all of them record it at once, or launch what they recorded at once, or none does.
  /// Waits for the other ranks then, and throws as links() does. Else `own`: each as it likes.
  RecordState agree(RecordState own);
  /// Where the columns of each rank begin, the last one's end behind them, for a matrix of `all`
  /// columns of which this rank has `own`. The first call with these waits for the other ranks'.
  const std::vector<int64_t>& columns(int64_t own, int64_t all);

  /// The first reason that a rank gives, with its GPU's name, the same on every rank; "": none
  /// does. All ranks call it. Throws OtherRankFailed.
  std::string agree(const std::string& reason);
  /// Whether NCCL brings the parts. Behind links().
  bool is_carried() const noexcept { return links_.carrier != nullptr; }
  /// The ranks' GPUs, in order. Behind links().
  const std::string& gpus() const noexcept { return gpus_; }
  /// The ranks meet by NCCL from now on. All ranks call it. Throws what links() throws.
  void leave_peers();

  void failed(int32_t first) noexcept override;
  void drop_records() noexcept override;
  void settle() noexcept override;
  void forget() noexcept override;

  void all_gather(std::byte* memory, int64_t bytes, Stream stream) override;

 private:
  void link();
  bool reaches(const DeviceRank& other);
  void link_peers();
  void link_by_nccl();
  void clear_words();
  std::shared_ptr<NcclClique> clique();

  struct Columns {
    int64_t own, all;
    std::vector<int64_t> begins;
  };

  CudaContext& context_;
  const std::shared_ptr<RankGroup> group_;
  RankWays ways_;
  Backend::Buffer memory_;  // two pieces, then words
  PinnedBuffer stop_;
  RankLinks links_;
  bool linked_ = false;
  std::string gpus_;
  bool first_runs_ahead_ = true;
  const DeviceRank* others_[kMostRanks] = {};  // while they link
  bool reaches_all_ = false;                   // likewise; the others read it
  Mutex clique_mutex_;
  std::shared_ptr<NcclClique> clique_ HEADRACE_GUARDED_BY(clique_mutex_);  // null: not by NCCL
  std::vector<Columns> columns_;
};

}  // namespace headrace::cuda
