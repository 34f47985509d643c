#include "text/files/sentencepiece/sentencepiece_model.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "headrace/status.h"
#include "text/files/sentencepiece/protobuf.h"
#include "text/unicode/utf8.h"

namespace headrace::text {

namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint32_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5;
constexpr uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint32_t kModelType = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35, kUnkSurface = 44;
constexpr uint32_t kCharsmap = 2, kDummyPrefix = 3, kRemoveExtraSpaces = 4, kEscapeSpaces = 5;

class ModelReader {
 public:
  TokenizerTables read(std::string_view file) {
    if (file.empty()) {
      throw Error(ErrorCode::kCorruptFile, "not a sentencepiece model: it is empty");
    }
    tables_.vocabulary = std::make_shared<Vocabulary>(false);
    tables_.kind = TokenizerTables::Kind::kUnigram;
    ProtobufReader reader(file);
    ProtobufField field;
    while (reader.next(&field)) {
      switch (field.number) {
        case kPieces:
          read_piece(message(reader, field));
          break;
        case kTrainerSpec:
          read_trainer_spec(message(reader, field));
          break;
        case kNormalizerSpec:
          read_normalizer_spec(message(reader, field));
          break;
        case kDenormalizerSpec:
          read_denormalizer_spec(message(reader, field));
          break;
        default:;
      }
    }
    tables_.vocabulary->index();
    check();
    return std::move(tables_);
  }

 private:
  static ProtobufReader message(const ProtobufReader& reader, const ProtobufField& field) {
    reader.bytes(field);
    return reader.nested(field);
  }

  void read_piece(ProtobufReader reader) {
    std::string_view text;
    float score = 0;
    uint64_t type = 1;
    ProtobufField field;
    while (reader.next(&field)) {
      if (field.number == kPieceText) {
        text = reader.bytes(field);
      } else if (field.number == kPieceScore) {
        score = reader.real(field);
      } else if (field.number == kPieceType) {
        type = reader.integer(field);
      }
    }
    const int32_t id = tables_.vocabulary->end();
    if (text.empty()) {
      throw_error(ErrorCode::kCorruptFile, "piece ", id, " is empty");
    }
    if (text.size() > kMaxPieceBytes) {
      throw_error(ErrorCode::kLimitExceeded, "piece ", id, " has ", text.size(),
                  " bytes, more than the ", kMaxPieceBytes, " allowed");
    }
    if (invalid_utf8_at(text) != kValid) {
      throw_error(ErrorCode::kCorruptFile, "piece ", id, " is not UTF-8");
    }
    if (!std::isfinite(score)) {
      throw_error(ErrorCode::kCorruptFile, "the score of piece ", id, " is no finite number");
    }
    tables_.vocabulary->append(id, text, kind_of(type, id, text));
    tables_.scores.push_back(score);
  }

  TokenKind kind_of(uint64_t type, int32_t id, std::string_view text) {
    switch (type) {
      case 1:
        return TokenKind::kNormal;
      case 2:
        if (tables_.unknown_id != Vocabulary::kNoId) {
          throw_error(ErrorCode::kCorruptFile, "pieces ", tables_.unknown_id, " and ", id,
                      " are both of the unknown type");
        }
        tables_.unknown_id = id;
        return TokenKind::kUnknown;
      case 3:
        return TokenKind::kControl;
      case 4:
        return TokenKind::kUserDefined;
      case 5:
        return TokenKind::kUnused;
      case 6:
        bytes_.set(byte_of(id, text));
        return TokenKind::kByte;
      default:
        throw_error(ErrorCode::kCorruptFile, "piece ", id, " is of an unknown type: ", type);
    }
  }

  static uint8_t byte_of(int32_t id, std::string_view text) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
      const size_t high = kDigits.find(text[3]);
      const size_t low = kDigits.find(text[4]);
      if (high != kDigits.npos && low != kDigits.npos) {
        return static_cast<uint8_t>(high << 4 | low);
      }
    }
    throw_error(ErrorCode::kCorruptFile, "byte piece ", id, " must be \"<0x00>\" to \"<0xFF>\"");
  }

  void read_trainer_spec(ProtobufReader reader) {
    ProtobufField field;
    while (reader.next(&field)) {
      switch (field.number) {
        case kModelType:
          read_model_type(reader.integer(field));
          break;
        case kWhitespaceAsSuffix:
          tables_.spaces.whitespace_as_suffix = reader.boolean(field);
          break;
        case kByteFallback:
          tables_.byte_fallback = reader.boolean(field);
          break;
        case kUnkSurface:
          tables_.unknown_text = reader.bytes(field);
          if (invalid_utf8_at(tables_.unknown_text) != kValid) {
            throw Error(ErrorCode::kCorruptFile, "unk_surface is not UTF-8");
          }
          break;
        default:;
      }
    }
  }

  void read_model_type(uint64_t type) {
    if (type == 3 || type == 4) {
      throw_error(ErrorCode::kUnsupported, "sentencepiece models of ",
                  type == 3 ? "words" : "characters",
                  " can't be read: only Unigram and BPE models can");
    }
    if (type != 1 && type != 2) {
      throw_error(ErrorCode::kCorruptFile, "a sentencepiece model of an unknown type: ", type);
    }
    tables_.kind = type == 1 ? TokenizerTables::Kind::kUnigram : TokenizerTables::Kind::kPieceBpe;
  }

  void read_normalizer_spec(ProtobufReader reader) {
    ProtobufField field;
    while (reader.next(&field)) {
      switch (field.number) {
        case kCharsmap:
          tables_.charsmap = reader.bytes(field);
          break;
        case kDummyPrefix:
          tables_.spaces.add_dummy_prefix = reader.boolean(field);
          break;
        case kRemoveExtraSpaces:
          tables_.spaces.remove_extra_whitespaces = reader.boolean(field);
          break;
        case kEscapeSpaces:
          tables_.spaces.escape_whitespaces = reader.boolean(field);
          break;
        default:;
      }
    }
  }

  static void read_denormalizer_spec(ProtobufReader reader) {
    ProtobufField field;
    while (reader.next(&field)) {
      if (field.number == kCharsmap && !reader.bytes(field).empty()) {
        throw Error(ErrorCode::kUnsupported,
                    "sentencepiece models with a denormalizer can't be read");
      }
    }
  }

  void check() const {
    if (tables_.vocabulary->end() == 0) {
      throw Error(ErrorCode::kCorruptFile, "it has no pieces");
    }
    if (tables_.unknown_id == Vocabulary::kNoId) {
      throw Error(ErrorCode::kCorruptFile, "no piece is of the unknown type");
    }
    if (!tables_.byte_fallback && bytes_.any()) {
      throw Error(ErrorCode::kCorruptFile, "there are byte pieces, but byte_fallback is off");
    }
    if (tables_.byte_fallback && !bytes_.all()) {
      throw_error(ErrorCode::kCorruptFile, "byte_fallback is on, but only ", bytes_.count(),
                  " of the 256 byte pieces are there");
    }
  }

  TokenizerTables tables_;
  std::bitset<256> bytes_;
};

}  // namespace

TokenizerTables read_sentencepiece_model(std::string_view file) try {
  return ModelReader().read(file);
} catch (const Error& error) {
  if (error.code() != ErrorCode::kCorruptFile) throw;
  throw_error(ErrorCode::kCorruptFile, "not a sentencepiece model: ", error.what());
}

}  // namespace headrace::text
