"""Commands about jobs: ``run``, ``submit``, ``ps``, ``job``, ``logs``, and the pages they print."""
