"""5-NN errors of test samples in two dimensions in the paper, in percent.

T. Ghosh and M. Kirby, "Supervised Dimensionality Reduction and Visualization using
Centroid-Encoder", Journal of Machine Learning Research 23(20), 2022. The paper took the errors of
most rivals from the papers of these rivals, so they were not all measured under the same protocol.
"""

from __future__ import annotations

PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {
        "centroid-encoder (paper)": 2.61,
        "centroid-encoder (paper, not pre-trained)": 3.17,
        "dt-MCML": 2.03,
        "dG-MCML": 2.13,
        "GerDA": 3.2,
        "HOPE": 3.20,
        "supervised UMAP": 3.45,
        "dt-NCA": 3.48,
        "nonlinear NCA": 4.71,
        "dG-NCA": 7.95,
        "parametric t-SNE": 9.90,
        "autoencoder": 22.04,
    },
    "usps": {
        "centroid-encoder (paper)": 2.91,
        "centroid-encoder (paper, not pre-trained)": 2.98,
        "dt-MCML": 2.46,
        "HOPE": 3.03,
        "dG-MCML": 3.37,
        "dt-NCA": 5.11,
        "supervised UMAP": 6.17,
        "nonlinear NCA": 6.58,
        "dG-NCA": 10.22,
        "autoencoder": 16.49,
    },
    "letter": {
        "centroid-encoder (paper)": 23.82,
        "SNeRV": 22.96,
        "parametric embedding": 31.15,
        "supervised Isomap": 31.97,
        "NCA": 62.30,
        "MUHSIC": 79.51,
        "multiple relational embedding": 90.98,
    },
    "landsat": {
        "centroid-encoder (paper)": 8.97,
        "supervised UMAP": 9.68,
        "UMAP": 11.89,
        "SNeRV": 14.34,
        "parametric embedding": 14.75,
        "supervised Isomap": 15.16,
        "MUHSIC": 15.37,
        "NCA": 15.57,
        "multiple relational embedding": 53.28,
    },
    "phoneme": {
        "centroid-encoder (paper)": 7.52,
        "supervised Isomap": 8.61,
        "SNeRV": 9.43,
        "parametric embedding": 9.84,
        "MUHSIC": 14.75,
        "NCA": 20.49,
        "multiple relational embedding": 45.08,
    },
    "iris": {
        "centroid-encoder (paper)": 3.29,
        "kernel supervised PCA": 5.16,
        "supervised PCA": 66.67,
    },
    "sonar": {
        "centroid-encoder (paper)": 14.24,
        "kernel supervised PCA": 21.06,
        "supervised PCA": 49.06,
    },
    "usps-1000": {
        "centroid-encoder (paper)": 12.16,
        "kernel supervised PCA": 51.63,
        "supervised PCA": 64.95,
    },
}
"""Error of each experiment and method."""
