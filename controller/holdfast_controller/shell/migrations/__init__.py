"""Alembic's environment; ``shell/store`` runs it at every start."""
