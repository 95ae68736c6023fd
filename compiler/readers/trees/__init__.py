"""Readers of tree ensembles: files of LightGBM, XGBoost and CatBoost to graphs with `tree_ensemble`."""
