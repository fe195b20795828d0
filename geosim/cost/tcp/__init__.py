"""TCP window by window: what Linux's flows do on one link, held against it in docs/transport.md."""
