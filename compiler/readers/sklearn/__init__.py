"""Reads fitted estimators of scikit-learn: objects to graphs in f64, without importing scikit-learn."""
