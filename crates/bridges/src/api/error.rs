//! Errors as callers see them: `{"error": {code, message, hint}}`.

use std::borrow::Cow;

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use intercom_daemon::ops::{ErrorKind, OpError};
use intercom_store::StoreError;
use intercom_types::{ErrorAttachment, ErrorBody, ErrorDetail};

#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: Cow<'static, str>,
    message: String,
    hint: Option<String>,
    /// The object beside `error` in the body.
    attached: Option<Box<ErrorAttachment>>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into(), hint: None, attached: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        OpError::bad_request(message).into()
    }

    /// An internal error.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        OpError::internal(message).into()
    }

    pub(super) fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        OpError::unprocessable(code, message).into()
    }

    pub(super) fn is_too_many(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, code, message, hint, attached } = self;
        let error = ErrorDetail { code, message, hint };
        (status, Json(ErrorBody { attached, error })).into_response()
    }
}

impl From<OpError> for ApiError {
    fn from(error: OpError) -> Self {
        let OpError { kind, code, message, hint, attached } = error;
        let status = match kind {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Removed => StatusCode::GONE,
            ErrorKind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::TooMany => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::NoAnswer => StatusCode::GATEWAY_TIMEOUT,
        };
        Self { status, code, message, hint, attached }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        OpError::from(error).into()
    }
}

pub(crate) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {}", uri.path()))
}

pub(crate) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
