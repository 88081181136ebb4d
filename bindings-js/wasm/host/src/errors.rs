//! Conversion of errors into and out of JavaScript.

use mangrove_engine::Error;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = Object)]
    type Plain;
    #[wasm_bindgen(constructor, js_class = "Object")]
    fn new() -> Plain;
    #[wasm_bindgen(method, setter)]
    fn set_code(this: &Plain, code: &str);
    #[wasm_bindgen(method, setter)]
    fn set_message(this: &Plain, message: &str);
    #[wasm_bindgen(method, setter)]
    fn set_retryable(this: &Plain, retryable: bool);

    #[wasm_bindgen(catch, js_namespace = Reflect, js_name = get)]
    fn property_of(object: &JsValue, name: &str) -> Result<JsValue, JsValue>;
}

/// Returns what a JavaScript caller catches: `{ code, message, retryable }`.
#[must_use]
pub fn to_js(error: &Error) -> JsValue {
    let object = Plain::new();
    object.set_code(error.code());
    object.set_message(&error.to_string());
    object.set_retryable(error.is_retryable());
    object.into()
}

/// Returns the error that a host's exception means. `context` says what was being done with `file`.
#[cold]
#[inline(never)]
#[must_use]
pub fn from_js(thrown: &JsValue, file: &str, context: String) -> Error {
    let code = property(thrown, "code").unwrap_or_default();
    match code.as_str() {
        "KV_QUOTA_EXCEEDED" | "ENOSPC" | "EDQUOT" => {
            return Error::StorageFull {
                context: context.into(),
            };
        }
        "KV_LOCKED" => return Error::Locked { file: file.into() },
        "KV_EVICTED" => return Error::Evicted { file: file.into() },
        "KV_NOT_FOUND" => return Error::NotFound { what: file.into() },
        "KV_READ_ONLY" => return Error::ReadOnly,
        _ => {}
    }
    if property(thrown, "name").is_some_and(|name| name == "QuotaExceededError") {
        return Error::StorageFull {
            context: context.into(),
        };
    }
    let source = property(thrown, "message").or_else(|| thrown.as_string());
    Error::io(
        context,
        source.unwrap_or_else(|| "the storage threw something that is not an error".to_owned()),
    )
}

/// Returns a string that anything that can be thrown has as a property, including `null` and
/// proxies.
fn property(thrown: &JsValue, name: &str) -> Option<String> {
    property_of(thrown, name).ok()?.as_string()
}
