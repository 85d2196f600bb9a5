"""Three launchers with one call signature: on a card, in the simulator, in the emulator.

    launcher(specialisation, grid, num_threads, arguments, *, dynamic_shared=0)

``arguments`` maps the kernel's parameters to tensors, numbers, or None for a null pointer. What is
above a launcher cannot tell which one it is, and so is tested without a card.
"""
