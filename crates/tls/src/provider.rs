//! The cryptography of all handshakes.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{DEFAULT_CIPHER_SUITES, default_provider, kx_group};

/// The default suites are AES-GCM and ChaCha20-Poly1305, with an ephemeral key for each handshake. The client's order of
/// suites holds: it knows whether its processor has instructions for AES. The first group is the hybrid that keeps
/// recorded traffic safe from a quantum computer.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: DEFAULT_CIPHER_SUITES.to_vec(),
            kx_groups: vec![
                kx_group::X25519MLKEM768,
                kx_group::X25519,
                kx_group::SECP256R1,
                kx_group::SECP384R1,
            ],
            ..default_provider()
        })
    });
    PROVIDER.clone()
}
