"""What runs functions of the program elsewhere: contexts, and the loop of asyncio."""
