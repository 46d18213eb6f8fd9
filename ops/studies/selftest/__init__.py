"""The self-test for owners of a device: which model of the Cube's additions a device has."""
