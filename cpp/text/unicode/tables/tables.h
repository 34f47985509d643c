#pragma once

// What tools/unicode_tables.py writes. Compact: unicode/ expands what must be fast.

#include <cstddef>
#include <cstdint>

namespace headrace::text::tables {

/// All that is known of a character: CharFlags, 16 bits; its combining class, 8 bits; its
/// GraphemeKind, 8 bits; its FormFlags.
extern const uint64_t kClasses[];
extern const size_t kClassesSize;
/// The length of each range << 8 | its class's number.
extern const uint32_t kClassRanges[];
extern const size_t kClassRangesSize;

/// Runs of neighbours whose full decompositions are of one length in UTF-16: the first one's low 16
/// bits; its plane << 13 | length << 8 | how many; the decompositions.
extern const uint16_t kCanonical[];
extern const size_t kCanonicalSize;
/// The same for compatible ones where they aren't the canonical ones.
extern const uint16_t kCompatible[];
extern const size_t kCompatibleSize;
/// In UTF-16: a character, and the two that it is made of.
extern const uint16_t kCompositions[];
extern const size_t kCompositionsSize;

/// Pairs: first character | count << 21 | (step - 1) << 31; what is added to each.
/// Specials: a character, how many it becomes, those.
extern const uint32_t kLowerRuns[];
extern const size_t kLowerRunsSize;
extern const uint16_t kLowerSpecials[];
extern const size_t kLowerSpecialsSize;
extern const uint32_t kPyLowerRuns[];
extern const size_t kPyLowerRunsSize;
extern const uint16_t kPyLowerSpecials[];
extern const size_t kPyLowerSpecialsSize;
extern const uint32_t kPyUpperRuns[];
extern const size_t kPyUpperRunsSize;
extern const uint16_t kPyUpperSpecials[];
extern const size_t kPyUpperSpecialsSize;
extern const uint32_t kPyTitleRuns[];
extern const size_t kPyTitleRunsSize;
extern const uint16_t kPyTitleSpecials[];
extern const size_t kPyTitleSpecialsSize;
extern const uint32_t kPyFoldRuns[];
extern const size_t kPyFoldRunsSize;
extern const uint16_t kPyFoldSpecials[];
extern const size_t kPyFoldSpecialsSize;

/// The first character of each range << 11 | its PythonFlags.
extern const uint32_t kPyRanges[];
extern const size_t kPyRangesSize;

}  // namespace headrace::text::tables
