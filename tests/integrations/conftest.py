"""Tests against packages that leaftrace works with: `make test-integrations` installs them."""
