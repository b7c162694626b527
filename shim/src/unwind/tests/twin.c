/* Two libraries made of this have the same addresses and other frames: SIZE is 64 or 4032 bytes. */
__attribute__((noinline)) long chain(int depth, void (*leaf)(void *), void *p)
{
    char a[SIZE];
    __asm__ volatile("" : : "r"(a) : "memory");
    if (depth > 0)
        return chain(depth - 1, leaf, p) + 1;
    leaf(p);
    __asm__ volatile("" : : "r"(a) : "memory");
    return 0;
}
