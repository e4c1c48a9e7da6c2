"""Taylor finite-difference coefficients by order of accuracy.

Weights k = 1, 2, ... of ``SECOND``: ``sum_k c_k ((f[i+k] - f[i]) + (f[i-k] - f[i])) / h^2``, of
``CENTRAL``: ``sum_k c_k (f[i+k] - f[i-k]) / h``, and of ``STAGGERED``, to the half cell above:
``sum_k c_k (f[i+k] - f[i+1-k]) / h`` (Fornberg 1988).
"""

ORDERS = (2, 4, 6, 8)
SECOND = {
    2: (1.0,),
    4: (4 / 3, -1 / 12),
    6: (3 / 2, -3 / 20, 1 / 90),
    8: (8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
CENTRAL = {
    2: (1 / 2,),
    4: (2 / 3, -1 / 12),
    6: (3 / 4, -3 / 20, 1 / 60),
    8: (4 / 5, -1 / 5, 4 / 105, -1 / 280),
}
STAGGERED = {
    2: (1.0,),
    4: (9 / 8, -1 / 24),
    6: (75 / 64, -25 / 384, 3 / 640),
    8: (1225 / 1024, -245 / 3072, 49 / 5120, -5 / 7168),
}
