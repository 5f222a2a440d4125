"""Reports: run directories in; statistics over seeds, diagnoses, and one offline HTML page out.

Everything is read as data from the files of the runs. Nothing here imports torch or Lightning, so that a report takes
seconds.
"""
