"""llm-foundry: measured MFU of FSDP on A100s and H100s."""
