#pragma once

// What the library holds, by the file that has it.

#include "text/template/library/builtin.h"

namespace headrace::text::jinja {

Table text_filters();
Table list_filters();
Table choosing_filters();
Table number_filters();
Table tests();
Table globals();
Table text_methods();       ///< that find, test and cut
Table text_form_methods();  ///< that make another text

/// The attribute at the end of a path ("a.b.0"), as map, sort and others take it. Missing and none
/// stand for the item itself.
Value follow(Run& run, const Value& item, const Value& path, const Value& otherwise);

}  // namespace headrace::text::jinja
