"""Alembic's environment; ``shell/store/store`` runs it at every start."""
