#include <algorithm>
#include <cstring>

#include "backend/checks/op_checks.h"
#include "backend/checks/op_checks_experts.h"
#include "backend/checks/op_checks_state.h"
#include "backend/cpu/cpu_backend_impl.h"
#include "backend/cpu/weights/packed_panels.h"
#include "backend/cpu/weights/quant_panels.h"
#include "backend/host/rope_angles.h"
#include "base/check.h"
#include "base/checked_math.h"

namespace headrace {

namespace {

constexpr int64_t kFloatBytes = sizeof(float);

/// Row `id` of a table in panels, side by side in storage dtype.
template <class Storage>
void gather_panel_row(const PackedPanels& table, int64_t id, Storage* out) {
  const PackedPanels::Row row = table.row(id);
  const auto* from = reinterpret_cast<const Storage*>(row.first);
  const int64_t group = table.layout().group;
  for (int64_t i = 0; i < table.k(); i += group) {
    for (int64_t g = 0; g < group && i + g < table.k(); ++g) out[i + g] = from[g];
    from += row.group_stride;
  }
}

void embed_f32(const PackedPanels& table, int64_t id, float* out) {
  if (table.layout().row_major) {
    std::memcpy(out, table.panel(id), static_cast<size_t>(table.k() * kFloatBytes));
  } else {
    gather_panel_row(table, id, out);
  }
}

void embed_half(const PackedPanels& table, int64_t id, const RowKernels& kernels, float* out) {
  const auto widen = table.storage() == DType::kBF16 ? kernels.from_bf16 : kernels.from_f16;
  if (table.layout().row_major) {
    widen(reinterpret_cast<const uint16_t*>(table.panel(id)), table.k(), out);
    return;
  }
  // The upper half of the output row holds the 16-bit numbers: widening from the front reads each
  // before it is written over.
  auto* half = reinterpret_cast<uint16_t*>(out) + table.k();
  gather_panel_row(table, id, half);
  widen(half, table.k(), out);
}

}  // namespace

void CpuBackend::embed(const PackedWeight& weight, TensorView out) {
  check_embed(step_, weight, out);
  read_tokens(weight, 0, out);
}

void CpuBackend::read_tokens(const PackedWeight& weight, int64_t first, const TensorView& out) {
  const auto* quantized = dynamic_cast<const QuantPanels*>(&weight);
  const auto* table = dynamic_cast<const PackedPanels*>(&weight);
  HEADRACE_CHECK(quantized != nullptr ? !quantized->cut().gate_up
                                      : table != nullptr && !table->layout().gate_up);
  for_rows(out.rows(), out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = step_.token_ids[static_cast<size_t>(i)] - first;
      float* const row = out.row<float>(i);
      if (id < 0 || id >= weight.n()) {
        std::fill_n(row, out.cols(), 0.0f);
      } else if (quantized != nullptr) {
        quantized->read_row(id, row);
      } else if (table->storage() == DType::kF32) {
        embed_f32(*table, id, row);
      } else {
        embed_half(*table, id, *isa_->rows, row);
      }
    }
  });
}

void CpuBackend::rope_table(const RopeSpec& spec, TensorView out) {
  check_rope_table(step_, spec, out);
  // An angle costs about as much as touching 64 bytes of cached memory ten times.
  for_rows(out.rows(), out.cols() * 640, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(i);
      rope_angles(spec, step_.rope_position(row), step_.rope_lens[row], out.row<float>(i));
    }
  });
}

void CpuBackend::rms_norm(TensorView x, TensorView weight, float eps, TensorView out) {
  check_rms_norm(x, weight, out);
  const float* const weights = weight.data == nullptr ? nullptr : weight.as<float>();
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->rms_norm(x.row<float>(i), weights, eps, x.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::add_rms_norm(TensorView residual, TensorView delta, TensorView weight, float eps,
                              TensorView out) {
  check_add_rms_norm(residual, delta, weight, out);
  const float* const weights = weight.data == nullptr ? nullptr : weight.as<float>();
  for_rows(residual.rows(), 3 * residual.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->add_rms_norm(residual.row<float>(i), delta.row<float>(i), weights, eps,
                               residual.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::layer_norm(TensorView x, TensorView weight, TensorView bias, float eps,
                            TensorView out) {
  check_layer_norm(x, weight, bias, out);
  const float* const shift = bias.data == nullptr ? nullptr : bias.as<float>();
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->layer_norm(x.row<float>(i), weight.as<float>(), shift, eps, x.cols(),
                             out.row<float>(i));
    }
  });
}

void CpuBackend::gate_mul(TensorView gate_up, const GateSpec& spec, TensorView out) {
  check_gate_mul(gate_up, spec, out);
  for_rows(out.rows(), 3 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* gate = gate_up.row<float>(i);
      isa_->rows->gate_mul(spec, gate, gate + out.cols(), out.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::add(TensorView x, TensorView out) {
  check_add(x, out);
  for_rows(out.rows(), 2 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->add(x.row<float>(i), out.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::add_gated(TensorView x, TensorView gate, TensorView delta, TensorView out) {
  check_add_gated(x, gate, delta, out);
  for_rows(out.rows(), 2 * (x.cols() + out.cols()) * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float factor = isa_->rows->gate(x.row<float>(i), gate.as<float>(), x.cols());
      isa_->rows->add_scaled(delta.row<float>(i), factor, out.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::scale(TensorView x, float factor, TensorView out) {
  check_scale(x, factor, out);
  for_rows(x.rows(), 2 * x.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->scale(x.row<float>(i), factor, x.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::mul_sigmoid(TensorView gate, TensorView out) {
  check_mul_sigmoid(gate, out);
  for_rows(out.rows(), 3 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->mul_sigmoid(gate.row<float>(i), out.cols(), out.row<float>(i));
    }
  });
}

// A row of logits is long and there may be one alone: its columns are divided, too.
void CpuBackend::cap_logits(TensorView logits, float factor, float cap) {
  check_cap_logits(logits, factor, cap);
  if (cap == 0.0f && factor == 1.0f) return;
  constexpr int64_t kPiece = 4096;
  const int64_t cols = logits.cols(), pieces = ceil_div(cols, kPiece);
  for_rows(logits.rows() * pieces, 2 * kPiece * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kPiece, count = std::min(kPiece, cols - first);
      float* const x = logits.row<float>(i / pieces) + first;
      if (cap == 0.0f) {
        isa_->rows->scale(x, factor, count, x);
      } else {
        isa_->rows->cap(x, factor, cap, count);
      }
    }
  });
}

void CpuBackend::gated_norm(TensorView x, TensorView gate, TensorView weight,
                            const GatedNormSpec& spec, TensorView out) {
  check_gated_norm(x, gate, weight, spec, out);
  const int64_t step = weight.shape.elements() == spec.group ? 0 : spec.group;
  const bool silu = spec.gate == GatedNormSpec::Gate::kSilu;
  for_rows(out.rows(), 3 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* weights = weight.as<float>();
      for (int64_t j = 0; j < out.cols(); j += spec.group, weights += step) {
        isa_->rows->gated_norm(x.row<float>(i) + j, gate.row<float>(i) + j, weights, spec.eps, silu,
                               spec.gate_first, spec.group, out.row<float>(i) + j);
      }
    }
  });
}

void CpuBackend::multiply(TensorView a, TensorView b, TensorView out) {
  check_multiply(a, b, out);
  for_rows(out.rows(), 3 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      isa_->rows->multiply(a.row<float>(i), b.row<float>(i), out.cols(), out.row<float>(i));
    }
  });
}

void CpuBackend::gather_rows(TensorView x, std::span<const int32_t> rows, TensorView out) {
  check_gather_rows(x, rows, out);
  for_rows(out.rows(), 2 * out.cols() * kFloatBytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(x.row<float>(rows[static_cast<size_t>(i)]), x.cols(), out.row<float>(i));
    }
  });
}

}  // namespace headrace
