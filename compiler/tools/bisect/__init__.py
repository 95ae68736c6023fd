"""`nacre bisect` and `nacre reduce`: the stage that causes a wrong result, and a small model that shows it."""
