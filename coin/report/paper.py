"""The paper's numbers (Tables I and II): NDA in percent of the first expert, the second, and their average.

They are for a ResNet-50, P = 200 and β = (0.5, 0.5).
"""

EXPERIMENTS = ("mnist_splits", "fashion_mnist_splits", "cifar10_splits",
               "mnist_fashion", "cifar10_fashion", "cifar10_mnist")  # fmt: skip

NDA: dict[str, dict[str, tuple[float, float, float]]] = {
    code: dict(zip(EXPERIMENTS, rows, strict=True))
    for code, rows in {
        "average": [(95.61, 83.52, 89.56), (98.75, 92.21, 95.48), (94.28, 86.09, 90.19),
                    (42.33, 73.27, 57.80), (66.65, 80.12, 73.39), (86.08, 68.84, 77.46)],
        "task_arithmetic": [(96.82, 83.56, 90.19), (98.73, 92.21, 95.47), (95.19, 86.70, 90.94),
                            (52.96, 80.99, 66.98), (76.83, 84.25, 80.54), (86.08, 68.84, 77.46)],
        "regmean": [(95.36, 83.91, 89.63), (96.50, 89.37, 92.93), (91.05, 85.05, 88.05),
                    (73.18, 78.83, 76.00), (87.01, 86.62, 86.81), (83.20, 69.40, 76.30)],
        "distillation": [(97.19, 97.06, 97.12), (92.98, 84.63, 88.80), (85.33, 90.86, 88.09),
                         (82.63, 75.27, 78.95), (62.44, 70.38, 66.41), (65.56, 87.29, 76.42)],
        "coin": [(98.72, 97.56, 98.14), (97.68, 97.39, 97.54), (97.63, 98.30, 97.96),
                 (80.36, 83.99, 82.17), (89.12, 85.86, 87.49), (92.89, 84.34, 88.62)],
    }.items()
}  # fmt: skip
