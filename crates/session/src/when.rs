//! Waits for an optional event, in a branch of `select!`.

/// Completes with `event`; never completes if `event` is `None`.
pub async fn when<F: Future>(event: Option<F>) -> F::Output {
    match event {
        Some(event) => event.await,
        None => std::future::pending().await,
    }
}
