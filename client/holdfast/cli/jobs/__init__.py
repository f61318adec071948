"""Commands about jobs: ``run``, ``submit``, ``ps``, ``job``, ``logs``.

The pages they print are in ``cli.pages``, what they submit is made in ``cli.submission``.
"""
