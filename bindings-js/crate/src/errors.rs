//! Errors on their way into and out of JavaScript.

use js_sys::{Object, Reflect};
use mangrove_engine::Error;
use wasm_bindgen::prelude::*;

/// What a JavaScript caller catches: `{ code, message, retryable }`.
pub(crate) fn to_js(error: &Error) -> JsValue {
    let object = Object::new();
    for (name, value) in [
        ("code", JsValue::from_str(error.code())),
        ("message", JsValue::from_str(&error.to_string())),
        ("retryable", JsValue::from_bool(error.is_retryable())),
    ] {
        // A new plain object takes any property.
        let _ = Reflect::set(&object, &JsValue::from_str(name), &value);
    }
    object.into()
}

/// What a host's exception means. `context` says what was being done with `file`.
#[cold]
#[inline(never)]
pub(crate) fn from_js(thrown: &JsValue, file: &str, context: String) -> Error {
    let code = text(thrown, "code").unwrap_or_default();
    match code.as_str() {
        "KV_QUOTA_EXCEEDED" | "ENOSPC" | "EDQUOT" => return Error::StorageFull { context },
        "KV_LOCKED" => return Error::Locked { file: file.to_owned() },
        "KV_NOT_FOUND" => return Error::NotFound { what: file.to_owned() },
        "KV_READ_ONLY" => return Error::ReadOnly,
        _ => {}
    }
    if text(thrown, "name").is_some_and(|name| name == "QuotaExceededError") {
        return Error::StorageFull { context };
    }
    let source = text(thrown, "message").or_else(|| thrown.as_string());
    Error::Io {
        context,
        source: source.unwrap_or_else(|| "the storage threw something that is no error".to_owned()),
    }
}

/// A property of anything that may be thrown, `null` and proxies included.
fn text(thrown: &JsValue, property: &str) -> Option<String> {
    Reflect::get(thrown, &JsValue::from_str(property)).ok()?.as_string()
}
