#pragma once

// Backend: the ops a model is made of, on one device.
//
// Threads: a Backend is used by one thread at a time (its model's loop thread).
// Memory: every TensorView passed to an op points into memory from allocate(), except where host
// memory is named. Ops of one backend run in call order; read_back(), sample() and end_sample() are
// the only calls that wait.
// Aliasing: outputs may not overlap inputs unless an op says so.
// Determinism: a row's result depends on that row's inputs alone, never on the number of rows, on
// their order or on the number of threads (bit for bit). Reductions run in one fixed order per
// weight shape.
// Errors: a shape that breaks an op's contract is our bug (InternalError). Memory that cannot be
// had throws Error(kOutOfMemory).
//
// Notation: T rows of the step, S rows that sample, H hidden size, V vocabulary, d head size,
// nq query heads, nkv key/value heads. "act" is activation_dtype(): float32 on the CPU.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/contract/activation.h"
#include "backend/contract/attention_op.h"
#include "backend/contract/block_copy.h"
#include "backend/contract/device_info.h"
#include "backend/contract/experts_op.h"
#include "backend/contract/kv_cache.h"
#include "backend/contract/latent_op.h"
#include "backend/contract/packed_lora.h"
#include "backend/contract/packed_weight.h"
#include "backend/contract/quant_format.h"
#include "backend/contract/rope.h"
#include "backend/contract/sample_op.h"
#include "backend/contract/state_ops.h"
#include "backend/contract/step_batch.h"
#include "backend/contract/vision_ops.h"
#include "backend/ranks/rank_ops.h"
#include "base/check.h"
#include "headrace/status.h"
#include "tensor/tensor_view.h"

namespace headrace {

/// What linear_add_rms_norm() works on, each as the two ops it stands for have it.
struct LinearAddNorm {
  TensorView x;  ///< [T, k]
  const PackedWeight& weight;
  TensorView bias;      ///< may be empty
  TensorView delta;     ///< [T, n], contents lost
  TensorView residual;  ///< [T, n], added to
  TensorView norm;      ///< [n], as rms_norm() has its weight
  float eps = 1e-6f;
  TensorView out;  ///< [T, n]; may be delta
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceInfo device_info() const = 0;
  /// By the thread that will run the steps from now on, which may be confined to some cores.
  virtual void enter_thread() {}
  /// Throws Error(kUnsupported) naming what this backend cannot run. A GPU tries kernels first that
  /// it hasn't tried yet.
  virtual void require(const BackendNeeds& needs) = 0;
  /// Dtype of activations for a model whose weights are kept in `storage`.
  virtual DType activation_dtype(DType storage) const = 0;
  /// Whether the device has failed for good: no op will work again. Any thread.
  virtual bool lost() const noexcept { return false; }

  // --- memory ---------------------------------------------------------------------------------

  /// `bytes` of device memory, aligned to 256. The buffer must not outlive the backend.
  struct Buffer {
    void* data = nullptr;
    size_t bytes = 0;
    std::shared_ptr<void> owner;  ///< releases the memory
  };
  virtual Buffer allocate(size_t bytes) = 0;
  /// Device memory that reads as the host memory [data, data + bytes): that memory itself where the
  /// device reads it, else a copy. Nobody writes to it. `owner` lives as long as it is needed.
  /// REQUIRES: data aligned to 256.
  virtual Buffer adopt(const void* data, size_t bytes, std::shared_ptr<void> owner) = 0;
  /// Bytes held now by buffers, weights and caches of this backend; adopted memory is not counted.
  virtual size_t bytes_in_use() const = 0;
  /// Bytes taken from the system to hold them: at least bytes_in_use().
  virtual size_t bytes_held() const = 0;
  /// Host to device; returns when `source` may be reused.
  virtual void upload(const void* source, void* device, size_t bytes) = 0;
  /// to [R, n] = values, rounded to its dtype, as an op: what is called before still reads what was
  /// there. Returns when `values` may be reused. REQUIRES: R*n values; outside of run_step().
  virtual void write_rows(std::span<const float> values, TensorView to) {
    HEADRACE_CHECK(
        to.dtype == DType::kF32 && static_cast<int64_t>(values.size()) == to.shape.elements(),
        values.size());
    const auto cols = static_cast<size_t>(to.cols());
    for (int64_t i = 0; i < to.rows(); ++i) {
      upload(values.data() + static_cast<size_t>(i) * cols, to.row<float>(i), cols * sizeof(float));
    }
  }
  /// Waits for all ops, then copies device to host.
  virtual void read_back(const void* device, void* destination, size_t bytes) = 0;

  /// Packs a weight from host memory, reading each source byte once. Never holds more than the
  /// packed weight plus 1 MiB per thread. Throws TensorError(kCorruptFile) for a number that is NaN
  /// or infinite, TensorError(kUnsupported) for one that would be infinite as it is kept; so do
  /// pack_vector and pack_lora.
  virtual std::unique_ptr<PackedWeight> pack_weight(const WeightSpec& spec) = 0;
  /// Name of the layout that weights kept as `storage` (or quantized) get. Backends with the same
  /// name take each other's packed bytes; a change of the layout changes it.
  virtual std::string weight_layout(DType storage, const QuantFormat& quant = {}) const = 0;
  /// PackedWeight::bytes() of a weight of this shape. Throws Error(kLimitExceeded) if no memory
  /// could hold it.
  virtual size_t packed_bytes(const WeightShape& shape) const = 0;
  /// A weight from the bytes of one that was packed in the same layout. REQUIRES:
  /// packed_bytes(shape) of `contents`.
  virtual std::unique_ptr<PackedWeight> restore_weight(const WeightShape& shape,
                                                       Buffer contents) = 0;
  /// A weight of use kEmbedding that stays where it is in host memory, as rows [n][k] of the
  /// shape's storage that read so as long as `owner` lives. Null: this backend doesn't read rows
  /// from there.
  virtual std::unique_ptr<PackedWeight> adopt_rows(const WeightShape& shape, const void* rows,
                                                   std::shared_ptr<void> owner) {
    static_cast<void>(shape);
    static_cast<void>(rows);
    static_cast<void>(owner);
    return nullptr;
  }
  /// A vector [n] (norm weights, biases) as activations, from a 1-column part.
  virtual TensorView pack_vector(const WeightPart& part, Buffer* owner) = 0;
  /// The same as kF32, whatever activations are.
  virtual TensorView pack_float_vector(const WeightPart& part, Buffer* owner) {
    return pack_vector(part, owner);
  }

  /// Packs one linear's adapter from host memory. Unlike all else, it may be called and its result
  /// destroyed by any thread at any time, also during a step.
  virtual std::unique_ptr<PackedLora> pack_lora(const LoraSpec& spec) = 0;

  virtual size_t kv_block_bytes(const CacheLayout& layout) const = 0;
  /// Of one state slot; 0 of a layout without states.
  virtual size_t state_slot_bytes(const CacheLayout& layout) const = 0;
  /// `num_slots`: state slots. 0, unless the layout has states.
  virtual std::unique_ptr<KvCache> make_kv_cache(const CacheLayout& layout, int32_t num_blocks,
                                                 int32_t num_slots = 0) = 0;
  /// Adds `count` host blocks, or host slots, to a cache of this backend: memory of the host, which
  /// no op but copy_blocks() uses. Throws Error(kOutOfMemory) if it cannot be had. REQUIRES: the
  /// cache has none yet.
  virtual void add_host_blocks(KvCache& cache, int32_t count) = 0;
  virtual void add_host_slots(KvCache& cache, int32_t count) = 0;

  /// Calls `ops`, which calls ops of a step. They compute nothing: they only take the memory that
  /// they keep from call to call, so that later ones of no more rows take none. A backend that
  /// keeps none need not call it.
  virtual void reserve(const std::function<void()>& ops) { static_cast<void>(ops); }

  // --- a step ---------------------------------------------------------------------------------

  /// Copies whole blocks and slots, one after the other: bit for bit what was written to them.
  /// Before begin_step(). Takes no memory, and doesn't wait where copies are asynchronous. Moves
  /// 2 * kv_block_bytes() for each, or 2 * state_slot_bytes(). REQUIRES: blocks, slots, host blocks
  /// and host slots of that cache.
  virtual void copy_blocks(KvCache& cache, std::span<const BlockCopy> copies) = 0;

  /// Uploads the step's indices. embed(), rope_table(), attention() and the fused cache write use
  /// them until the next begin_step(). REQUIRES: the batch's contract (step_batch.h).
  virtual void begin_step(const StepBatch& batch) = 0;
  /// Rows that the ops of the step just begun compute: T of what follows. Those of its batch, or
  /// more, up to the batch's `room`: rows behind the batch's are padding, with results of no use.
  virtual int64_t step_rows(const StepBatch& batch) const {
    return static_cast<int64_t>(batch.token_ids.size());
  }
  /// Steps of single tokens, all of them sampled from, run best with the logits of this many rows
  /// at once: a backend that records them reads every weight once then. 0: any number does.
  virtual int32_t recorded_rows() const { return 0; }
  /// Runs the step's ops. If the batch has `room`, a backend may record them, and launch the record
  /// in a later step instead of calling `ops`: with one `model` and `cache`, ops of as many rows
  /// must be the same and have the same arguments.
  virtual void run_step(const void* model, const KvCache& cache, const std::function<void()>& ops) {
    static_cast<void>(model);
    static_cast<void>(cache);
    ops();
  }

  /// out [T, H] act = rows of `table` at the step's token ids. REQUIRES: ids in [0, table.n()).
  /// Moves T*H*(storage + act) bytes.
  virtual void embed(const PackedWeight& table, TensorView out) = 0;

  /// out [T, rotary_dim] f32: for each row cos of all pairs, then sin of all pairs, times the
  /// attention factor.
  virtual void rope_table(const RopeSpec& spec, TensorView out) = 0;

  /// out = x / sqrt(mean(x^2) + eps) * weight, per row. x, out [T, H] act; weight [H] act or f32,
  /// empty: ones. float32 accumulation. out may be x. Moves 2*T*H*act bytes.
  virtual void rms_norm(TensorView x, TensorView weight, float eps, TensorView out) = 0;

  /// residual += delta, then out = rms_norm(residual). All [T, H]; weight as there. out may be
  /// delta. Moves 4*T*H*act bytes.
  virtual void add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                            TensorView out) = 0;

  /// out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, per row; var is the mean of
  /// (x - mean(x))^2. x, out [T, H] act; weight, bias [H] act, bias may be empty. float32
  /// accumulation. out may be x. Also outside of steps. Moves 2*T*H*act bytes.
  virtual void layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                          TensorView out) = 0;

  /// A hint: what follows the next linear(), experts() or norm uses `weight`. Threads that wait may
  /// fetch some of it, a norm may leave rows as its linear() reads them.
  virtual void expect(const PackedWeight& weight) { static_cast<void>(weight); }

  /// out [T, n] = x [T, k] . W^T (+ bias [n] act, may be empty). float32 accumulation. Of a W
  /// packed with kGateUp it gives gate‖up.
  /// Moves W.bytes() + T*(k + n)*act bytes. REQUIRES, as the ops below: one expert.
  virtual void linear(TensorView x, const PackedWeight& weight, TensorView bias,
                      TensorView out) = 0;

  /// residual += x . W^T (+ bias), then out = rms_norm(residual): the bits of linear() to `delta`
  /// and add_rms_norm().
  virtual void linear_add_rms_norm(const LinearAddNorm& args) {
    linear(args.x, args.weight, args.bias, args.delta);
    add_rms_norm(args.residual, args.delta, args.norm, args.eps, args.out);
  }

  /// out [T, n/2] = what `spec` makes of gate and up, where gate‖up = x . W^T (+ bias [n]). W
  /// packed with kGateUp.
  virtual void linear_gate_mul(TensorView x, const PackedWeight& weight, TensorView bias,
                               const GateSpec& spec, TensorView out) = 0;

  /// out [T, n/2] = what `spec` makes of gate_up [T, n]. After linear() it gives the bits of
  /// linear_gate_mul(). Moves 1.5*T*n*act bytes.
  virtual void gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) = 0;

  /// Chooses spec.top_k of spec.num_experts experts for each row of x [T, H] by `gate` [E, H], kept
  /// as kF32; see RouterSpec. `logit_bias` and `correction` [E] f32 may be empty. ids [T, top_k]
  /// i32 in ascending order, all different and in [0, E) even for a row of NaN; weights [T, top_k]
  /// f32. float32 throughout. Moves gate.bytes() + T*H*act bytes.
  virtual void route(TensorView x, const PackedWeight& gate, TensorView logit_bias,
                     TensorView correction, const RouterSpec& spec, TensorView ids,
                     TensorView weights) = 0;

  /// out[row] = the sum over the row's experts e, in ascending order, of
  /// weight * (down_e . gate_mul(gate_up_e . x[row] + its bias) + its bias), float32; what lies
  /// between are activations, rounded as linear() rounds them. Without gates activate() stands for
  /// gate_mul(). Moves the weights of all experts that some row uses.
  virtual void experts(const Experts& args) = 0;

  /// out += x, both [T, H] act.
  virtual void add(TensorView x, TensorView out) = 0;

  /// out = x * factor, rounded once. x, out [T, n] act, some columns of wider rows perhaps; out may
  /// be x. Moves 2*T*n*act bytes. REQUIRES: a finite factor.
  virtual void scale(TensorView x, float factor, TensorView out) = 0;

  /// x = f(x), elementwise, float32, rounded once. x [T, n] act, some columns of wider rows
  /// perhaps. Also outside of steps. Moves 2*T*n*act bytes.
  virtual void activate(Activation kind, TensorView x) = 0;

  /// out *= sigmoid(gate), float32, rounded once. gate, out [T, n] act: gate is often some columns
  /// of wider rows. Moves 3*T*n*act bytes.
  virtual void mul_sigmoid(TensorView gate, TensorView out) = 0;

  /// l *= factor; then, with cap > 0, l = cap * tanh(l / cap). float32, each within a few ulp.
  /// logits [S, V] f32. NaN stays NaN; an infinity becomes the cap with its sign, without a cap it
  /// stays. Moves 2*S*V*4 bytes. REQUIRES: finite numbers, factor != 0, cap >= 0 (0: none).
  virtual void cap_logits(TensorView logits, float factor, float cap) = 0;

  /// out[row] += sigmoid(x[row] . gate) * delta[row]. x [T, H], gate [H], delta and out [T, n] act;
  /// float32 accumulation.
  virtual void add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) = 0;

  /// out[row] += what the row's adapter adds for x[row], for the R rows of all groups; the other
  /// rows stay as they are. x [T, k], out [T, n] act; scratch [>= R, >= scratch_columns() of every
  /// group] f32, contents lost. float32 accumulation: A x first, then B.
  /// Moves the bytes() of the groups' adapters + R*(k + 2*n)*act bytes.
  virtual void lora(TensorView x, std::span<const LoraGroup> groups, TensorView scratch,
                    TensorView out) = 0;

  /// qkv [T, (nq + 2*nkv)*d]: q heads, k heads, v heads of each row. Normalises q, k and v as the
  /// spec says, rotates q and k by `rope_table` [T, rotary_dim] (empty if rotary_dim is 0: no
  /// rotation), multiplies q by its position's factor, and writes k and v of every row into `cache`
  /// at the step's positions, rounded to the cache's dtype. q stays in qkv; what is left of k and v
  /// there is of no use. `layer`: its number in the cache's layout. Moves
  /// T*(2*nq + 2*nkv)*d*act bytes, and what is cached. REQUIRES, as attention(): StepBatch::cache
  /// is `cache`.
  virtual void rope_kv_write(TensorView qkv, const QkvSpec& spec, const RopeSpec& rope,
                             TensorView rope_table, KvCache& cache, int32_t layer) = 0;

  /// What rope_kv_write() does to queries, of a layer that reads another one's keys and values:
  /// q [T, nq*d]. What the spec says of keys and values means nothing. Moves 2*T*nq*d*act bytes.
  virtual void rope_queries(TensorView q, const QkvSpec& spec, const RopeSpec& rope,
                            TensorView rope_table) = 0;

  /// Of each row: a linear for each of several groups of columns. A group's numbers are rounded and
  /// summed as linear() does. Moves weight.bytes() + T*G*(k + n)*act bytes.
  virtual void grouped_linear(const GroupedLinear& args) = 0;

  /// Writes each row of kv [T, rank + rope_dim] to `cache`, at the step's positions: its first
  /// `rank` numbers normed, the others turned by `rope_table` [T, rope_dim]. Of each head of
  /// q [T, nq*query_dim] the last rope_dim numbers, turned alike, go to columns
  /// [h*row_dim + rank, h*row_dim + rank + rope_dim) of out [T, nq*row_dim], and zeros to those
  /// behind; the first `rank` stay as they are. kv's contents are lost. The layer keeps latent
  /// rows.
  virtual void latent_write(TensorView q, TensorView kv, const LatentSpec& spec,
                            const RopeSpec& rope, TensorView rope_table, KvCache& cache,
                            int32_t layer, TensorView out) = 0;

  /// out [T, nq*d] = softmax(l + mask) . V of each row over the keys and values that `cache` holds
  /// for its sequence and `spec` lets it see, with l = scale * q . K^T, capped by soft_cap. A head
  /// with a sink s adds e^s to its softmax's sum. q is the first nq*d columns of qkv. Mixed prefill
  /// chunks and decodes in one call. Keys are visited in tiles anchored at position 0, merged in
  /// index order, whatever the block size; the sink comes last. Latent rows are keys and values of
  /// one head. Moves 2*T*nq*d*act bytes, and each
  /// sequence's visible keys and values as often as a backend's pieces of rows read them.
  virtual void attention(TensorView q, const AttentionSpec& spec, const KvCache& cache,
                         int32_t layer, TensorView out) = 0;

  // --- layers with a state (state_ops.h): `layer` is the number of one that keeps such a state in
  // the layout of `cache`, which is StepBatch::cache. Each loads the states of each slice from its
  // state_in, and stores what they have become to its state_out and its saves.

  /// out[t][c] = f(sum over j of weight[j][c] * x[t - kernel + 1 + j][c], j ascending, + bias[c]),
  /// where the x before the slice are the state's window, which becomes the slice's last x. x, out
  /// [T, channels] act; weight [kernel, channels] f32; bias [channels] f32, may be empty. float32,
  /// rounded once. Moves 2*T*channels*act bytes, and each slice's window twice.
  virtual void causal_conv(TensorView x, TensorView weight, TensorView bias, const ConvSpec& spec,
                           KvCache& cache, int32_t layer, TensorView out) = 0;

  /// Makes of q‖k‖v and of the rows' logits what delta_rule() reads. qkv [T, spec.qkv_columns()]
  /// act: each head of q and k is multiplied by 1 / sqrt(sum of its squares + 1e-6), q by
  /// 1 / sqrt(key_dim), too; v stays. b, a [T, value_heads] act; a_log, dt_bias [value_heads] f32.
  /// gates [T, 2 * value_heads] f32: decays exp(-exp(a_log) * softplus(a + dt_bias)), then betas
  /// sigmoid(b). float32, qkv rounded once.
  /// Moves T*(4*key_columns + 2*value_heads)*act + T*2*value_heads*4 bytes.
  virtual void delta_prepare(TensorView qkv, TensorView b, TensorView a, TensorView a_log,
                             TensorView dt_bias, const DeltaSpec& spec, TensorView gates) = 0;

  /// The gated delta rule. For each row of a slice, in order, and each value head, with its S
  /// [key_dim, value_dim] f32, decay d, beta b, and q, k, v: r = d * (S^T k); u = b * (v - r);
  /// S = d * S + k u^T; out = S^T q. qkv and gates as delta_prepare() leaves them; out
  /// [T, value_columns] act. float32. Moves T*(qkv_columns + value_columns)*act bytes, and each
  /// slice's matrices twice.
  virtual void delta_rule(TensorView qkv, TensorView gates, const DeltaSpec& spec, KvCache& cache,
                          int32_t layer, TensorView out) = 0;

  /// Mamba-2's scan. For each row of a slice, in order, and each head, with its S
  /// [state_dim, head_dim] f32 and x, B, C: t = min(max(softplus(dt + dt_bias), dt_min), dt_max);
  /// S = exp(-exp(a_log) * t) * S + B (t * x)^T; out = S^T C + skip * x. out [T, x_columns] act.
  /// float32. Moves T*(xbc_columns + x_columns)*act bytes, and each slice's matrices twice.
  virtual void ssm_scan(const ScanArgs& args, KvCache& cache, int32_t layer, TensorView out) = 0;

  /// out = norm(x) * weight * f(gate), or norm(x * f(gate)) * weight, where norm(x) =
  /// x / sqrt(mean(x^2) + eps) of each group of a row. x, gate, out [T, n] act; weight [n] or
  /// [group] f32. float32, rounded once. out may be x. Moves 3*T*n*act bytes.
  virtual void gated_norm(TensorView x, TensorView gate, TensorView weight,
                          const GatedNormSpec& spec, TensorView out) = 0;

  /// out = a * b, float32, rounded once. a, b, out [T, n] act, some columns of wider rows perhaps;
  /// out may be a or b. Moves 3*T*n*act bytes.
  virtual void multiply(TensorView a, TensorView b, TensorView out) = 0;

  /// out[i] = x[rows[i]]. rows is host memory; out [rows.size(), H].
  virtual void gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) = 0;

  // --- vision towers: outside of steps too, on rows that no batch describes
  // -----------------------

  /// x [T, heads*d] act: turns every head by `table` [T, d] f32, of which a row has d/2 cosines and
  /// then d/2 sines: with a = x[i] and b = x[i + d/2] of a head, x[i] = a*cos[i] - b*sin[i] and
  /// x[i + d/2] = b*cos[i] + a*sin[i]. Moves T*d*(2*heads*act + 4) bytes. REQUIRES: even d.
  virtual void rotate(TensorView x, TensorView table, int32_t heads, int32_t head_dim) = 0;

  /// out[rows[i]] = x[i]; the other rows stay as they are. rows is host memory, all different;
  /// x [rows.size(), H]. Moves 2*rows.size()*H*act bytes.
  virtual void scatter_rows(TensorView x, std::span<const int32_t> rows, TensorView out) = 0;

  /// Attention within segments of rows, without a cache; see SegmentAttention.
  virtual void segment_attention(const SegmentAttention& args) = 0;

  // --- ranks: devices that compute a model together, each with a part of its weights ----------
  // Ranks are backends that have joined a group, used by a thread each. All are given the same
  // steps and calls of these ops in one order, with as many rows. A call may wait for the others
  // (but not within reserve()); it throws OtherRankFailed when one has failed: who catches what
  // another op throws calls RankGroup::fail(). Sums run in the order of the ranks.

  /// From now on this is rank `rank` of the group. Once, before anything else is asked of it; all
  /// ranks are backends of one kind. Throws Error(kUnsupported) where a device can't.
  virtual void join(std::shared_ptr<RankGroup> group, int32_t rank) {
    static_cast<void>(rank);
    throw_error(ErrorCode::kUnsupported, device_info().name, " can't share a model with ",
                group->count() - 1, " other devices: leave tensor_parallel_size out.");
  }

  /// By all ranks once all have joined: takes what exchanges need. Throws kUnsupported, kDevice.
  virtual void link_ranks() {}

  /// embed() of a part of the table: its row i is that of token first + i. Rows of tokens that it
  /// hasn't are 0, so that all_reduce() of what the ranks have gives every row. Of an id that a
  /// drawn token has the same holds. REQUIRES: ids >= 0.
  virtual void embed_part(const PackedWeight& table, int32_t first, TensorView out) {
    HEADRACE_CHECK(false, out.rows(), " rows of ", table.n(), " tokens from ", first, ": no rank");
  }

  /// x = (rank 0's x + rank 1's) + rank 2's ..., each sum in float32, rounded once to act; the same
  /// bits on every rank. x [T, n] act, in memory from allocate(), of the same shape on each.
  /// Moves 2*N*T*n*act bytes in all.
  virtual void all_reduce(TensorView x) { HEADRACE_CHECK(false, x.rows(), " rows: it is no rank"); }

  /// all_reduce(delta), then add_rms_norm(): their bits.
  virtual void all_reduce_add_rms_norm(const ReduceAddNorm& args) {
    all_reduce(args.delta);
    add_rms_norm(args.residual, args.delta, args.norm, args.eps, args.out);
  }

  /// out [S, sum of n] = the ranks' x [S, n] side by side, rank 0's first, all f32 or act; widths
  /// that sum up alike are divided alike. A rank whose `out` has a shape, but no data, only gives.
  /// No x overlaps its rank's out. Moves 2*S*(sum of n)*dtype bytes for each out.
  virtual void gather_columns(TensorView x, TensorView out) {
    static_cast<void>(out);
    HEADRACE_CHECK(false, x.rows(), " rows: it is no rank");
  }

  /// Draws a token for each row; the call returns when the results are on the host. No two rows
  /// name the same row of the logits.
  /// `logits` [S, V'] f32 with V' >= vocab_size; ids >= vocab_size are never drawn. Per row, in
  /// this order (float32):
  ///   0. SampleResult::finite is read here
  ///   1. ids >= vocab_size and ids not in `allowed` := -inf
  ///   2. raw log-probabilities read here
  ///   3. += bias
  ///   4. `masked` ids := -inf
  ///   5. repetition: seen l := l < 0 ? l * r : l / r; then l -= count * frequency + (count > 0)
  ///      * presence; penalized log-probabilities read here
  ///   6. l /= temperature (unless greedy)
  ///   7. `banned` ids := -inf
  ///   8. processed log-probabilities read here
  ///   9. p = softmax(l); drop p < min_p * max(p); keep the top_k largest; of those keep the
  ///      smallest set of largest p whose sum >= top_p * (sum of the kept); renormalise; draw
  ///      u = philox(seed, position) and take the first token, in descending order of (p, then
  ///      ascending id), whose cumulative sum exceeds u.
  /// The top-k/top-p set is found without sorting the vocabulary.
  /// If everything is -inf, the result is the smallest id allowed by step 1 (or 0).
  /// `logits` is overwritten.
  virtual void sample(TensorView logits, int32_t vocab_size, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) = 0;

  // --- steps ahead of results -----------------------------------------------------------------

  /// Whether a step may begin before the results of the one before have been collected:
  /// begin_sample(), end_sample() and StepBatch::drawn work.
  virtual bool runs_ahead() const { return false; }
  /// Most SampleRow::num_logprobs that begin_sample() takes.
  virtual int32_t most_logprobs_ahead() const { return -1; }
  /// The step's last op where its batch has `room`, within run_step(): these are the logits that
  /// begin_sample() will get. Where the batch says how they will be drawn from (StepBatch::draws),
  /// a backend may draw here, so that a record has it; begin_sample() then queues nothing.
  virtual void draw(TensorView logits, int32_t vocab_size) {
    static_cast<void>(logits);
    static_cast<void>(vocab_size);
  }
  /// sample(), but it doesn't wait: end_sample() gives the results. No rows: then end_sample()
  /// waits for what was called before. REQUIRES: runs_ahead(); at most kMostDrawn rows in a step;
  /// what two steps draw, or less, has not been collected. The step before may be collected between
  /// a step's ops and this.
  virtual void begin_sample(TensorView logits, int32_t vocab_size,
                            std::span<const SampleRow> rows) {
    static_cast<void>(logits);
    HEADRACE_CHECK(false, rows.size(), " rows of ", vocab_size, " ids: it does not run ahead");
  }
  /// Waits for the oldest begin_sample() that has not been collected, and collects it, even if it
  /// throws what went wrong. REQUIRES: as many results as it had rows.
  virtual void end_sample(std::span<SampleResult> results) {
    HEADRACE_CHECK(false, results.size(), " results: it does not run ahead");
  }
};

}  // namespace headrace
