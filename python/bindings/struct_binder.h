#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "short_repr.h"

namespace headrace::python {

/// Binds a plain struct: a constructor that takes its fields as keywords, with the struct's own
/// defaults, an attribute for each field, and a short repr.
template <class Struct>
class StructBinder {
 public:
  StructBinder(pybind11::module_& module, const char* name, const char* doc)
      : class_(module, name, doc), fields_(std::make_shared<Fields>()) {
    fields_->type = name;
    class_.def(pybind11::init(
        [fields = fields_](const pybind11::kwargs& values) { return fields->construct(values); }));
    class_.def("__repr__", short_repr);
  }

  template <class Value>
  StructBinder& field(const char* name, Value Struct::* member) {
    class_.def_readwrite(name, member);
    fields_->setters[name] = [member](Struct& target, const pybind11::handle& value) {
      target.*member = value.cast<Value>();
    };
    return *this;
  }

  template <class Value>
  StructBinder& required(const char* name, Value Struct::* member) {
    fields_->required.push_back(name);
    return field(name, member);
  }

 private:
  struct Fields {
    std::string type;
    std::map<std::string, std::function<void(Struct&, const pybind11::handle&)>> setters;
    std::vector<std::string> required;

    Struct construct(const pybind11::kwargs& values) const {
      for (const auto& name : required) {
        if (!values.contains(name)) {
          throw pybind11::type_error(type + "() needs the keyword argument '" + name + "'");
        }
      }
      Struct out;
      for (const auto& [key, value] : values) {
        const std::string name = pybind11::str(key);
        const auto setter = setters.find(name);
        if (setter == setters.end()) {
          throw pybind11::type_error(type + "() got an unexpected keyword argument '" + name + "'");
        }
        try {
          setter->second(out, value);
        } catch (const pybind11::cast_error&) {
          const pybind11::object shown = pybind11::repr(value)[pybind11::slice(0, 200, 1)];
          throw pybind11::type_error(type + "() cannot use " + std::string(pybind11::str(shown)) +
                                     " as '" + name + "'");
        }
      }
      return out;
    }
  };

  pybind11::class_<Struct> class_;
  std::shared_ptr<Fields> fields_;
};

}  // namespace headrace::python
