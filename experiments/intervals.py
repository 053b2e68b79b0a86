"""Intervals over seeds, for the tables of experiments' READMEs."""
import statistics

# The 97.5 % quantile of Student's t by degrees of freedom.
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def student(values):
    """(mean, low, high): Student's t of 95 % with one value per seed as the sample, at least two and at most ten."""
    mean = statistics.fmean(values)
    half = T_975[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half
