"""From options, files and local code to the job that is submitted.

No command lives here, and of the controller's calls only the upload of code is made.
"""
