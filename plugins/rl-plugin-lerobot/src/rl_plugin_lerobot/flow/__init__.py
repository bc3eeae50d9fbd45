"""What policies that follow a learned velocity share."""
