"""What is compiled for the processor at hand: vector code, and the threads that run it."""
